"""A NATS with a rule of its own on who may come in and what they may do."""

import os
import signal

from pillarbox.servers import Nats


class ClosedNats(Nats):
    """A NATS with an `authorization` block; `change_rule` takes effect at once."""

    def __init__(self, rule: str) -> None:
        super().__init__()
        self._rule = rule

    def change_rule(self, rule: str) -> None:
        self._rule = rule
        self._prepare()
        os.kill(self.pid, signal.SIGHUP)

    def _prepare(self) -> None:
        super()._prepare()
        config = self.folder / "nats.conf"
        config.write_text(config.read_text("utf-8") + f"authorization {{ {self._rule} }}\n")
