"""What no inbox takes is refused by its field, before anything is written."""

from typing import Any

import pytest

from pillarbox import InboxMessage, SqlAlchemyInbox
from pillarbox.errors import InvalidKey, InvalidMessageId, PayloadNotJson
from tests.inbox.targets import Target, stored
from tests.support.database import Database, on

BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no id": ({"message_id": ""}, InvalidMessageId, "message_id is empty"),
    "None as id": ({"message_id": None}, InvalidMessageId, "has the type NoneType"),
    "no type": ({"event_type": ""}, InvalidKey, "event_type is empty"),
    "long type": ({"event_type": "T" * 256}, InvalidKey, "event_type has 256 characters"),
    "NUL in the source": ({"source": "a\x00b"}, InvalidKey, "source holds a control character"),
    "NaN": ({"payload": {"n": float("nan")}}, PayloadNotJson, r"payload\.n is NaN"),
    "NaN beside": ({"extra_data": {"n": float("nan")}}, PayloadNotJson, r"extra_data\.n is NaN"),
}


@pytest.mark.parametrize("case", BAD)
@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_bad_input_is_refused_by_its_field_and_writes_nothing(
    database: Database, target: Target, case: str
) -> None:
    wrong, error, words = BAD[case]
    call: dict[str, Any] = {"message_id": "m-1", "event_type": "T", **wrong}
    inbox = SqlAlchemyInbox(target)

    with pytest.raises(error, match=words):
        await inbox.claim(**call)
    with pytest.raises(error, match=words):
        await inbox.mark_processed(**call)
    with pytest.raises(error, match=words):
        await inbox.claim_many(
            [InboxMessage(message_id="m-2", event_type="T"), InboxMessage(**call)]
        )

    await target.commit()
    assert await stored(database) == []


@on("sqlite+aiosqlite")
async def test_a_consumer_needs_a_name(database: Database) -> None:
    async with database.sessions() as session:
        for name in ("", "x" * 256, "a\nb"):
            with pytest.raises(InvalidKey, match="consumer"):
                SqlAlchemyInbox(session, consumer=name)
