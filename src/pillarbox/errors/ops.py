"""Operators' calls that were refused."""

from pillarbox.errors.root import PillarboxError


class OpsError(PillarboxError):
    """An operator's call was refused; nothing was changed."""

    code = "ops"


class InvalidRequest(OpsError, ValueError):
    """An operator's call has a filter, a reason or a value that cannot be meant."""

    code = "invalid-request"

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field} {problem}; {remedy}")
        self.field, self.problem, self.remedy = field, problem, remedy


class EventUnknown(OpsError):
    """No event of this tenant and id stands in the outbox."""

    code = "event-unknown"

    def __init__(self, tenant_id: str, event_id: str) -> None:
        super().__init__(
            f"tenant {tenant_id!r} has no event {event_id} in the outbox; check both, and whether "
            "it was discarded or removed by retention"
        )
        self.tenant_id, self.event_id = tenant_id, event_id


class EventNotTroubled(OpsError):
    """An event is neither FAILED nor DEAD, so there is nothing to decide about it."""

    code = "event-not-troubled"

    def __init__(self, event_id: str, status: str, action: str) -> None:
        super().__init__(
            f"event {event_id} is {status}, and {action} is for FAILED and DEAD events; "
            "it was left as it is"
        )
        self.event_id, self.status, self.action = event_id, status, action


class EventInFlight(OpsError):
    """An event stands in an open claim, or another transaction works on it."""

    code = "event-in-flight"

    def __init__(self, event_id: str, claim_id: str | None, member_id: str | None) -> None:
        holder = (
            "another transaction works on it"
            if claim_id is None
            else f"claim {claim_id} of projector {member_id} is open"
        )
        super().__init__(
            f"event {event_id} may be on its way to the broker: {holder}; it was left as it is, "
            "try again when the claim has ended or its lease has expired"
        )
        self.event_id, self.claim_id, self.member_id = event_id, claim_id, member_id


class SagaUnknown(OpsError):
    """No saga of this tenant and id is in the table."""

    code = "saga-unknown"

    def __init__(self, tenant_id: str, saga_id: str) -> None:
        super().__init__(
            f"tenant {tenant_id!r} has no saga {saga_id}; check both, and whether it ended so long "
            "ago that it was removed"
        )
        self.tenant_id, self.saga_id = tenant_id, saga_id


class SagaNotOpen(OpsError):
    """A saga is not in a state in which the act would do anything."""

    code = "saga-not-open"

    def __init__(self, saga_id: str, state: str, action: str) -> None:
        super().__init__(
            f"saga {saga_id} is {state}, and {action} does nothing there; it was left as it is"
        )
        self.saga_id, self.state, self.action = saga_id, state, action


class ParkedUnknown(OpsError):
    """No message is set aside under this id."""

    code = "parked-unknown"

    def __init__(self, tenant_id: str, parked_id: str) -> None:
        super().__init__(
            f"no message is set aside as {parked_id} for tenant {tenant_id!r}; it was handled or "
            "discarded, or belongs to another tenant"
        )
        self.tenant_id, self.parked_id = tenant_id, parked_id


class ParkedInFlight(OpsError):
    """A message that was set aside is being handled, or somebody else decides about it."""

    code = "parked-in-flight"

    def __init__(self, parked_id: str) -> None:
        super().__init__(
            f"the message {parked_id} is being handled, or another act has it; nothing was "
            "changed, try again in a moment"
        )
        self.parked_id = parked_id
