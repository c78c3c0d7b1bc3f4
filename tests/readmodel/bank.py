"""An application with a model that follows a bus in memory."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import MappingProxyType

from pillarbox import Pillarbox
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.event.incoming import Incoming
from pillarbox.readmodel.cache import RowCache
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.making import ReadModelRunner
from tests.readmodel.rig import Accounts, Rig
from tests.support.database import on

TOPIC = "bank.account"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
QUICK = ReadModelConfig(look_every=0.02)
on_two = on("postgres18+asyncpg", "sqlite+aiosqlite")


class Bank:
    """A bus in memory, and an application with a model that follows it."""

    def __init__(
        self,
        rig: Rig,
        bus: MemoryMessageBus | None = None,
        config: ReadModelConfig = QUICK,
        *,
        environ: Mapping[str, str] = MappingProxyType({}),
        cache: RowCache | None = None,
    ) -> None:
        self.rig, self.bus = rig, bus or MemoryMessageBus()
        self.box = Pillarbox(rig.database.engine, self.bus, service="bank", environ=environ)
        self.model = self.box.read_model(Accounts, topics=[TOPIC], config=config, cache=cache)

    def send(
        self, event_type: str, body: str, version: int, number: int = 1, *, message_id: str = ""
    ) -> None:
        own_id = f"{event_type}-{version}" if number == 1 else f"{event_type}-{version}.{number}"
        headers = {
            "event_id": message_id or own_id, "event_type": event_type,
            "aggregate_type": "account", "aggregate_id": "a", "aggregate_version": str(version),
            "event_number": str(number),
        }  # fmt: skip
        self.bus.put(Incoming(TOPIC, "a", headers, body.encode(), "application/json"))

    def deposit(self, cents: int, version: int) -> None:
        self.send("Deposited", f'{{"account_id":"a","cents":{cents}}}', version)

    def open(self, owner: str, version: int, number: int = 1) -> None:
        self.send("Opened", f'{{"account_id":"a","owner":"{owner}"}}', version, number)

    def rename(self, owner: str, version: int, number: int = 1) -> None:
        self.send("Renamed", f'{{"account_id":"a","owner":"{owner}"}}', version, number)

    def close(self, version: int, number: int = 1) -> None:
        self.send("Closed", '{"account_id":"a"}', version, number)

    async def row(self) -> tuple[str | None, int] | None:
        row = (await self.rig.rows()).get(("default", "a"))
        return None if row is None else (row["owner"], row["cents"])


@asynccontextmanager
async def running(model: ReadModelRunner) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(model.run_forever())
        try:
            yield
        finally:
            model.stop()


async def has(bank: Bank, row: tuple[str, int]) -> bool:
    return await bank.row() == row
