"""Why a command with an Idempotency-Key is not executed; each becomes a problem for the client."""

from typing import ClassVar

from pillarbox.errors import PillarboxError


class IdempotencyError(PillarboxError):
    """A command was not executed, or its answer cannot be given."""

    code = "idempotency"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "The command was not executed"


class IdempotencyKeyInvalid(IdempotencyError):
    """The header Idempotency-Key cannot be read as one key."""

    code = "idempotency-key-invalid"
    status = 400
    title = "Idempotency-Key is malformed"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"Idempotency-Key {problem}; send it once, as a quoted string or a plain token of 1 to "
            "255 printable ASCII characters, for example a UUID"
        )
        self.problem = problem


class IdempotencyKeyMissing(IdempotencyError):
    """The operation demands an Idempotency-Key and the request has none."""

    code = "idempotency-key-missing"
    status = 400
    title = "Idempotency-Key is missing"

    def __init__(self) -> None:
        super().__init__(
            "this operation needs the header Idempotency-Key; make a new key for each command, "
            "and send the same one when you repeat it"
        )


class RequestTooLarge(IdempotencyError):
    """The body of a command is larger than its fingerprint may cover."""

    code = "request-too-large"
    status = 413
    title = "The request is too large"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the body of a request with Idempotency-Key may have {limit:,} bytes; upload large "
            "content apart and send a reference to it"
        )
        self.limit = limit


class CommandInProgress(IdempotencyError):
    """A command with the same key is being executed."""

    code = "command-in-progress"
    status = 409
    title = "A request with this Idempotency-Key is in progress"

    def __init__(self, retry_after: int) -> None:
        super().__init__(
            "the first request with this key is still being executed; repeat this one with the "
            f"same key after {retry_after} s to get its answer"
        )
        self.retry_after = retry_after


class IdempotencyKeyReused(IdempotencyError):
    """A key that has served one request comes with another one."""

    code = "idempotency-key-reused"
    status = 422
    title = "Idempotency-Key was used for another request"

    def __init__(self) -> None:
        super().__init__(
            "this key was sent before with another path, query or body; make a new key for a new "
            "command, and repeat a command unchanged"
        )


class TooManyKeys(IdempotencyError):
    """A caller has as many keys on record as it may have."""

    code = "too-many-keys"
    status = 429
    title = "Too many Idempotency-Keys"

    def __init__(self, quota: int) -> None:
        super().__init__(
            f"you have {quota:,} keys on record, which is the limit; repeat commands with their "
            "old keys, or wait until some have expired"
        )
        self.quota = quota


class AnswerNotKept(IdempotencyError):
    """The command took effect before, and its answer was too large or a stream."""

    code = "answer-not-kept"
    status = 409
    title = "The command took effect; its answer was not kept"

    def __init__(self, recorded_status: int) -> None:
        super().__init__(
            f"this command was executed once and answered with status {recorded_status}; the "
            "answer was too large to keep, so read what it changed instead of repeating it"
        )
        self.recorded_status = recorded_status


class NotAuthorized(IdempotencyError):
    """The caller may not send this command, or may no longer do so."""

    code = "not-authorized"
    status = 403
    title = "Not authorized"

    def __init__(self) -> None:
        super().__init__("you may not send this command; a recorded answer is not shown either")


class CommandNotCommitted(IdempotencyError):
    """The database refused to commit a command whose answer was ready."""

    code = "command-not-committed"
    status = 500
    title = "The command was undone"

    def __init__(self) -> None:
        super().__init__(
            "the database refused to commit this command, so nothing of it took effect; it may be "
            "repeated with the same key"
        )


class CommandUnknown(IdempotencyError):
    """The connection was lost while a command was being committed."""

    code = "command-unknown"
    status = 503
    title = "It is not known whether the command took effect"

    def __init__(self, retry_after: int) -> None:
        super().__init__(
            "the database was lost during the commit of this command; repeat it with the same key: "
            "it is then answered if it took effect, and executed if it did not"
        )
        self.retry_after = retry_after


class PrincipalMissing(IdempotencyError):
    """Nobody could say who sent a command."""

    code = "principal-missing"
    status = 500
    title = "The caller is not known"

    def __init__(self) -> None:
        super().__init__(
            "principal= found no caller for a request with Idempotency-Key, so that its answer "
            "could be given to someone else; authenticate first, and return a text that names one "
            "caller"
        )
