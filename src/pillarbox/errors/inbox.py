"""Messages that must not take effect, or not once more."""

from pillarbox.errors.root import PillarboxError


class InboxError(PillarboxError):
    """A message must not take effect here, or not once more."""

    code = "inbox"


class InvalidMessageId(InboxError, ValueError):
    """A message has no id that tells it from others."""

    code = "invalid-message-id"

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"message_id {problem}; {remedy}")
        self.field, self.problem, self.remedy = "message_id", problem, remedy


class DuplicateMessage(InboxError):
    """A message was handled, and it turns out that it had taken effect before."""

    code = "duplicate-message"

    def __init__(self, *, tenant_id: str, consumer: str, message_id: str) -> None:
        super().__init__(
            f"message {message_id!r} was processed before by consumer {consumer!r} of tenant "
            f"{tenant_id!r}; roll back, or its effect would be there twice, and acknowledge it"
        )
        self.tenant_id, self.consumer, self.message_id = tenant_id, consumer, message_id


class ContentMismatch(InboxError):
    """A message has the id of another one, and other content."""

    code = "content-mismatch"

    def __init__(
        self, *, tenant_id: str, consumer: str, message_id: str, stored_hash: str, given_hash: str
    ) -> None:
        super().__init__(
            f"message {message_id!r} was processed before by consumer {consumer!r} of tenant "
            f"{tenant_id!r} with other content; it must not take effect: set it aside and ask its "
            "producer, who used an id twice or changed a message"
        )
        self.tenant_id, self.consumer, self.message_id = tenant_id, consumer, message_id
        self.stored_hash, self.given_hash = stored_hash, given_hash
