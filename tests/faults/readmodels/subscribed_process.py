"""Build a model that follows a subscription again, and tell how far it is.

python -m tests.faults.readmodels.subscribed_process DATABASE BUS TOPIC
"""

import asyncio
import sys
from datetime import timedelta
from typing import Final

from pillarbox import Pillarbox
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.making import ReadModelRunner
from pillarbox.readmodel.progress import Progress
from tests.readmodel.rig import Accounts

# What a killed process had in hand comes again after so long.
ACK_WAIT: Final = timedelta(seconds=2)
CONFIG: Final = ReadModelConfig(tell_every=0.1, history="kept")


def made(database: str, bus: str, topic: str) -> tuple[Pillarbox, ReadModelRunner]:
    # Little in hand at a time: a kill meets messages before, in and behind it.
    # Each kill is a crash; no message is to blame.
    environ = {
        "PILLARBOX_CONSUMER_BATCH_SIZE": "20",
        "PILLARBOX_CONSUMER_WINDOW": "100",
        "PILLARBOX_CONSUMER_MAX_CRASHES": "100",
    }
    box = Pillarbox(database, NatsMessageBus(bus, ack_wait=ACK_WAIT), environ=environ)
    return box, box.read_model(Accounts, topics=[topic], config=CONFIG)


def tell(progress: Progress) -> None:
    sys.stdout.write(f"{progress.phase} {progress.position} {progress.target}\n")
    sys.stdout.flush()


async def main(database: str, bus: str, topic: str) -> None:
    box, model = made(database, bus, topic)
    async with box.running():
        await model.rebuild(report=tell)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
