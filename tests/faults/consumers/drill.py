"""Kill, freeze and stop consumers again and again, several at a time, and count it."""

import random
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.faults.consumers.points import POINTS
from tests.faults.consumers.rig import Bank
from tests.faults.process import Process

KILL: Final = "kill"
FREEZE: Final = "freeze"
STOP: Final = "stop"
_REACH_SECONDS: Final = 60.0
# The members that are there may have all partitions that something comes to.
_IDLE_SECONDS: Final = 15.0
_TIMES_MAX: Final = 3
_TAKEN_OVER: Final = """
    SELECT count(*) FROM effect mine
    WHERE mine.process = %s AND EXISTS (
        SELECT FROM effect other
        WHERE other.consumer = mine.consumer AND other.tenant = mine.tenant
            AND other.account = mine.account AND other.process <> mine.process
            AND other.at > to_timestamp(%s)
    )"""


@dataclass(slots=True)
class Slot:
    """One running member and what is to become of it."""

    task: str
    member: Process
    times: int
    state: str = "running"
    received: int = 0
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    frozen_at: float = 0.0


@dataclass(slots=True)
class Drill:
    """A list of tasks, done by several members at a time until all have succeeded."""

    bank: Bank
    chance: random.Random
    tasks: deque[str]
    width: int = 3
    done: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    slots: list[Slot] = field(default_factory=list)

    @classmethod
    def of(cls, bank: Bank, tasks: Sequence[str]) -> "Drill":
        """Plan these tasks in an order that follows from the seed."""
        chance = random.Random(bank.seed)
        return cls(bank, chance, deque(chance.sample(tasks, len(tasks))))

    @property
    def faults(self) -> int:
        """How many times messages went from one member to another: each end is also a beginning."""
        return 2 * (sum(self.done.values()) + self.replaced) + self.width

    def run(self, seconds: float) -> None:
        """Work through the tasks."""
        self.bank.crew.until(self._turn, "all tasks of the drill", seconds)

    def _turn(self) -> bool:
        self.slots = [slot for slot in self.slots if not self._finished(slot)]
        while self.tasks and len(self.slots) < self.width:
            self.slots.append(self._begin(self.tasks.popleft()))
        return not (self.tasks or self.slots)

    def _begin(self, task: str) -> Slot:
        times = self.chance.randint(1, _TIMES_MAX)
        if task in POINTS:
            member = self.bank.start_member(f"{task}:{times}")
        elif task == FREEZE:
            member = self.bank.start_member(f"frozen:{times}", signal="SIGSTOP")
        else:
            member = self.bank.start_member()
        return Slot(task, member, times)

    def _finished(self, slot: Slot) -> bool:
        member = slot.member
        if not member.running:
            expected = 0 if slot.task == STOP else -signal.SIGKILL
            assert member.wait() == expected, f"{slot.task}: {member.said()}"
            self.done[slot.task] += 1
            return True
        if slot.state == "running" and self._is_idle(slot):
            self._replace(slot)
            return True
        late = time.monotonic() > slot.began + _REACH_SECONDS
        assert not late, f"{slot.task} is still {slot.state}: {member.said()}"
        match slot.task, slot.state:
            case (("kill" | "stop"), "running"):
                if member.lines("beginning") >= slot.times:
                    member.signal(signal.SIGKILL if slot.task == KILL else signal.SIGTERM)
                    slot.state = "struck"
            case "freeze", _:
                self._watch_frozen(slot)
        return False

    def _is_idle(self, slot: Slot) -> bool:
        received = slot.member.lines("received")
        if received != slot.received:
            slot.received, slot.heard = received, time.monotonic()
        return time.monotonic() > slot.heard + _IDLE_SECONDS

    def _replace(self, slot: Slot) -> None:
        """Do the task with another member, which has another share."""
        slot.member.signal(signal.SIGKILL)
        slot.member.wait()
        self.replaced += 1
        self.tasks.append(slot.task)

    def _watch_frozen(self, slot: Slot) -> None:
        member = slot.member
        if slot.state == "running" and member.lines("struck"):
            slot.state, slot.frozen_at = "frozen", time.time()
        elif slot.state == "frozen" and self._taken_over(slot):
            # Others have gone on with what it holds; now it goes on with that as well.
            slot.received = member.lines("beginning")
            member.signal(signal.SIGCONT)
            slot.state = "thawed"
        elif slot.state == "thawed" and member.lines("beginning") > slot.received:
            member.signal(signal.SIGKILL)
            slot.state = "struck"

    def _taken_over(self, slot: Slot) -> bool:
        return bool(self.bank.crew.ask(_TAKEN_OVER, slot.member.name, slot.frozen_at))
