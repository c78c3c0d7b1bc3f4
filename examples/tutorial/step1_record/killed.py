"""Place an order, in a process that is killed as soon as it has committed."""

import asyncio
import os
import signal
import sys

from sqlalchemy import event
from sqlalchemy.orm import Session

from examples.tutorial.step1_record.orders import place_order
from pillarbox import Pillarbox


def power_cut(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    event.listen(Session, "after_commit", power_cut)
    asyncio.run(place_order(Pillarbox.from_env(service="orders"), sys.argv[1], 42))
