"""Run a read model, or build it again and again, until this process is killed.

python -m tests.faults.readmodels.model_process URL run|rebuild
"""

import asyncio
import sys

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from pillarbox.database import async_url
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.rebuild import LogRebuild
from pillarbox.readmodel.runner import LogRunner
from tests.readmodel.rig import Accounts


async def main(url: str, what: str) -> None:
    engine = create_async_engine(async_url(url))
    config = ReadModelConfig(batch_size=7, look_every=0.01, history="kept")
    parts = Parts(async_sessionmaker(engine, expire_on_commit=False), config)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if what == "run":
        await LogRunner(Accounts(), parts).run_forever()
    while what == "rebuild":
        await LogRebuild(Accounts(), parts).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
