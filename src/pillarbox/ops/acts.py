"""Operators' acts on the outbox, each with who and why."""

from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.event.ids import IdMaker, id_maker
from pillarbox.ops.act import Act, ActLimits, Desk, Done
from pillarbox.ops.audit import checked_actor, checked_reason
from pillarbox.ops.controls import ControlChange, change_control, checked_rate, control_of
from pillarbox.ops.decisions import Decision
from pillarbox.ops.filters import EventFilter
from pillarbox.ops.many_events import act_on_all
from pillarbox.ops.one_event import act_on_one, checked_id
from pillarbox.ops.transactions import Transactions


class Ops:
    """Act on the outbox, for the command line, the dashboard and programs alike.

        ops = Ops(engine, actor="jane@example.com")
        await ops.retry(event_id, tenant_id="acme", reason="the schema was registered")
        await ops.skip_all(EventFilter(topic="orders"), reason="the topic is retired")

    Every act commits together with its row in `pillarbox_audit`; a call that raises has changed
    nothing, except that an act on many events keeps the batches it has committed. Acts wait for
    open claims. With `tenant_id` the operator reaches that tenant alone. It takes the rights of the
    projector's role.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        actor: str,
        schema: str | None = None,
        tenant_id: str | None = None,
        limits: ActLimits | None = None,
        new_id: IdMaker | None = None,
    ) -> None:
        self._desk = Desk(
            Transactions(engine, schema, tenant_id),
            checked_actor(actor),
            limits or ActLimits(),
            new_id or id_maker(),
        )

    async def retry(
        self, event_id: UUID | str, *, reason: str, tenant_id: str | None = None
    ) -> Done:
        """Make a FAILED or DEAD event NEW, with all its attempts before it.

        Its last error leaves the row and stays in the audit. Its key stays blocked behind it until
        it is SENT. A skipped event that is retried comes after those that have overtaken it.
        """
        return await self._one(Decision.RETRY, event_id, reason, tenant_id)

    async def skip(
        self, event_id: UUID | str, *, reason: str, tenant_id: str | None = None
    ) -> Done:
        """Leave a FAILED or DEAD event DEAD for good, marked `skipped`, and release its key."""
        return await self._one(Decision.SKIP, event_id, reason, tenant_id)

    async def discard(
        self, event_id: UUID | str, *, reason: str, tenant_id: str | None = None
    ) -> Done:
        """Delete a FAILED or DEAD event and release its key; the audit keeps what it was."""
        return await self._one(Decision.DISCARD, event_id, reason, tenant_id)

    async def retry_all(self, matching: EventFilter, *, reason: str) -> Done:
        """Retry every FAILED or DEAD event that matches, in batches."""
        return await self._all(Decision.RETRY, matching, reason)

    async def skip_all(self, matching: EventFilter, *, reason: str) -> Done:
        """Skip every FAILED or DEAD event that matches, in batches."""
        return await self._all(Decision.SKIP, matching, reason)

    async def discard_all(self, matching: EventFilter, *, reason: str) -> Done:
        """Discard every FAILED or DEAD event that matches, in batches."""
        return await self._all(Decision.DISCARD, matching, reason)

    async def pause(
        self, *, reason: str, tenant_id: str | None = None, topic: str | None = None
    ) -> Done:
        """Have projectors stop publishing for a tenant, a topic, or a tenant's topic."""
        return await self._control("pause", reason, tenant_id, topic, {"paused": 1})

    async def resume(
        self, *, reason: str, tenant_id: str | None = None, topic: str | None = None
    ) -> Done:
        """End a pause; projectors notice, and release what waited."""
        return await self._control("resume", reason, tenant_id, topic, {"paused": 0})

    async def limit(
        self,
        events_per_second: int | None,
        *,
        reason: str,
        tenant_id: str | None = None,
        topic: str | None = None,
    ) -> Done:
        """Bound the rate of a tenant, a topic, or a tenant's topic; None removes the bound."""
        values = {"events_per_second": checked_rate(events_per_second)}
        return await self._control("limit", reason, tenant_id, topic, values)

    async def _one(
        self, decision: Decision, event_id: UUID | str, reason: str, tenant_id: str | None
    ) -> Done:
        tenant = self._desk.transactions.tenant(tenant_id, decision)
        return await act_on_one(
            self._desk, self._act(decision, reason), tenant, checked_id(event_id)
        )

    async def _all(self, decision: Decision, matching: EventFilter, reason: str) -> Done:
        return await act_on_all(self._desk, self._act(decision, reason), matching)

    async def _control(
        self,
        action: str,
        reason: str,
        tenant_id: str | None,
        topic: str | None,
        values: dict[str, int | None],
    ) -> Done:
        place = control_of(self._desk, tenant_id, topic)
        change = ControlChange(action, *place, checked_reason(reason), values)
        return await change_control(self._desk, change)

    def _act(self, decision: Decision, reason: str) -> Act:
        return Act(decision, checked_reason(reason), self._desk.new_id())
