"""Kill, freeze and stop projectors again and again, each with a claim open, and count it."""

import random
import signal
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from tests.faults.points import POINTS
from tests.faults.process import Process
from tests.faults.rig import Rig

KILL: Final = "kill"
FREEZE: Final = "freeze"
STOP: Final = "stop"
_REACH_SECONDS: Final = 45.0
# A claim that follows its read in a statement of its own needs a backlog, as at the beginning.
_TIMES_MAX: Final = {"after-read": 3, "lease-renewal": 1}
_TIMES: Final = 12
_TRIES: Final = 12


@dataclass(slots=True)
class Slot:
    """One running projector and what is to become of it."""

    task: str
    projector: Process
    state: str = "running"
    claims: int = 0
    began: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Drill:
    """A list of tasks, done by several projectors at a time until all have succeeded."""

    rig: Rig
    chance: random.Random
    tasks: deque[str]
    width: int = 4
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    slots: list[Slot] = field(default_factory=list)

    @classmethod
    def of(cls, rig: Rig, *, each_point: int, kills: int, freezes: int, stops: int) -> "Drill":
        """Plan so many faults of each kind, in an order that follows from the seed."""
        chance = random.Random(rig.seed)
        tasks = [*POINTS] * each_point + [KILL] * kills + [FREEZE] * freezes + [STOP] * stops
        chance.shuffle(tasks)
        return cls(rig, chance, deque(tasks))

    @property
    def kills(self) -> int:
        """How many projectors were killed with a claim open."""
        return sum(self.done[task] for task in (*POINTS, KILL))

    def hits(self, point: str) -> int:
        """How many projectors came to their end at a point, by their own traces."""
        return sum(projector.killed_at(point) for projector in self.rig.projectors)

    @property
    def faults(self) -> int:
        """How many faults there were in all, with a claim open or not."""
        return sum(self.done.values()) + sum(self.failed.values())

    def run(self, seconds: float) -> None:
        """Work through the tasks; fail when one does not get anywhere."""
        self.rig.until(self._turn, f"all tasks of the drill, {self.done} done", seconds)

    def _turn(self) -> bool:
        self.slots = [slot for slot in self.slots if not self._finished(slot)]
        if self.slots and all(slot.state == "frozen" for slot in self.slots):
            self.tasks.append(KILL)  # somebody must be there to take over from them
        while self.tasks and len(self.slots) < self.width:
            self.slots.append(self._begin(self.tasks.popleft()))
        return not self.slots

    def _begin(self, task: str) -> Slot:
        times = self.chance.randint(1, _TIMES_MAX.get(task, _TIMES))
        point = f"{task}:{times}" if task in POINTS else None
        return Slot(task, self.rig.start_projector(point))

    def _finished(self, slot: Slot) -> bool:
        projector = slot.projector
        if not projector.running:
            self._judge(slot)
            return True
        late = time.monotonic() > slot.began + _REACH_SECONDS
        assert not late, f"{slot.task} is still {slot.state}: {projector.said()}"
        match slot.task, slot.state:
            case (("kill" | "freeze" | "stop"), "running"):
                if self.rig.open_claims(projector):
                    self._strike(slot)
            case "freeze", "frozen":
                # Beyond the lease: somebody else has taken over what it held.
                if self.rig.leases(projector) == 0:
                    slot.claims = projector.lines("claimed")
                    projector.signal(signal.SIGCONT)
                    slot.state = "thawed"
            case "freeze", "thawed":
                if projector.lines("claimed") > slot.claims:
                    self.done[FREEZE] += 1
                    slot.task, slot.state, slot.began = KILL, "running", time.monotonic()
        return False

    def _strike(self, slot: Slot) -> None:
        number, slot.state = {
            KILL: (signal.SIGKILL, "struck"),
            FREEZE: (signal.SIGSTOP, "frozen"),
            STOP: (signal.SIGTERM, "struck"),
        }[slot.task]
        slot.projector.signal(number)

    def _judge(self, slot: Slot) -> None:
        """Count an end that had a claim open, and try the others again."""
        projector, code = slot.projector, slot.projector.wait()
        expected = 0 if slot.task == STOP else -signal.SIGKILL
        assert code == expected, f"{slot.task} ended with {code}: {projector.said()}"
        if slot.task == STOP:
            assert self.rig.leases(projector) == 0, projector.said()
            self.done[STOP] += 1
        elif projector.killed_at(slot.task) or self.rig.open_claims(projector):
            # It came to a point with events in hand; the server may have settled them since.
            self.done[slot.task] += 1
        else:
            self.failed[slot.task] += 1
            assert self.failed[slot.task] <= _TRIES + 2 * self.done[slot.task], self.failed
            self.tasks.append(slot.task)
