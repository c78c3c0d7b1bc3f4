"""Order and no loss hold whatever happens; without any one of the rules they do not."""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.projector.hand import Hand
from pillarbox.projector.lanes import Lanes, Stops
from pillarbox.projector.postgres.reader import Plan, Reader, Snapshot
from pillarbox.projector.ready import Batch
from pillarbox.projector.store import OutboxEvent, Settlement
from pillarbox.projector.turns import Pair, Turns
from pillarbox.projector.work import Work
from tests.projector.simulated_outbox import Violation
from tests.projector.simulated_projector import Simulation
from tests.projector.simulated_table import ReaderSimulation

STEPS = 150
TRIES = 8_000
seeds = st.integers(0, 2**32)


@settings(max_examples=300)
@given(seeds)
def test_one_by_one_every_event_arrives_in_order_and_none_is_lost(seed: int) -> None:
    Simulation(Random(seed), together=False).run(STEPS)


@settings(max_examples=300)
@given(seeds)
def test_together_every_event_arrives_in_order_and_none_is_lost(seed: int) -> None:
    Simulation(Random(seed), together=True).run(STEPS)


@settings(max_examples=300)
@given(seeds)
def test_every_row_that_becomes_visible_is_read_once_and_in_order(seed: int) -> None:
    ReaderSimulation(Random(seed)).run(STEPS)


class Mutant(NamedTuple):
    """A rule that is broken: the method in its place, and what is seen of it."""

    of: type
    method: str
    instead: Callable[..., Any]
    seen: tuple[str, ...]
    known: tuple[int, ...] = ()  # seeds that showed it: tried first, since one in thousands does


def caught(run: Callable[[Random], None], known: Iterable[int] = ()) -> str:
    """Return the first violation that random runs find."""
    for seed in (*known, *range(TRIES)):
        try:
            run(Random(seed))
        except (Violation, KeyError) as violation:
            return f"{type(violation).__name__} {violation}"
    return "nothing"


# Work, Lanes, Stops and Hand without one of their rules


def admit_all(lanes: Lanes, event: OutboxEvent) -> bool:
    if event.lane not in lanes:
        return lanes.reserve(event)
    lanes._state(event.lane).flying += 1
    return True


def rest_behind(lanes: Lanes, lane: Any, state: Any) -> None:
    state.waiting.extend(state.again)
    state.again = []
    lanes.failing.discard(lane)
    lanes.resting[lane] = None


def true(*args: object) -> bool:
    return True


def false(*args: object) -> bool:
    return False


def forget_at_once(stops: Stops, asked: int) -> None:
    stops._being_written = {}


def stop_behind_as_it_stands(work: Work, event: OutboxEvent) -> None:
    work._set_aside(event, work._lanes.stop(event.lane))


def all_shards(hand: Hand, shards: frozenset[int]) -> frozenset[int]:
    return shards


def let_go_of_all(hand: Hand, settlement: Settlement, lost: frozenset[int]) -> int:
    for event in settlement.leaving():
        hand._claims.pop(event.seq, None)
        hand.seqs.discard(event.seq)
    return 0


def drop_in_hand_only(
    hand: Hand, shards: frozenset[int], settlement: Settlement
) -> dict[int, OutboxEvent]:
    gone = {event.seq: event for event in hand._events() if event.shard in shards}
    for seq in gone:
        del hand._claims[seq]
        hand.seqs.discard(seq)
    return gone


def only_in_hand(hand: Hand, seq: object) -> bool:
    return seq in hand._claims


def never(work: Work, event: OutboxEvent) -> None:
    """Do not send a suspect whose attempt is counted."""


def begin_as_it_was_made(work: Work, batch: Batch) -> Batch:
    return batch


WORK_MUTANTS = {
    "no guard of the key": Mutant(Lanes, "admit", admit_all, ("order",)),
    "goes on after a failure": Mutant(Work, "starting", begin_as_it_was_made, ("order", "hand")),
    "what failed goes last": Mutant(Lanes, "_rest", rest_behind, ("order",)),
    "counts a refusal behind others": Mutant(
        Lanes, "has_only", true, ("order", "KeyError", "loss")
    ),
    "a claim may not know of a block": Mutant(Stops, "hold", false, ("order",)),
    "forgets a stop once it is written": Mutant(Stops, "written", forget_at_once, ("order",)),
    "a waiting topic hides a failure": Mutant(
        Work, "_stop_behind", stop_behind_as_it_stands, ("order",), known=(1802, 4075, 5496)
    ),
    "a suspect shares its lane": Mutant(Lanes, "reserve", true, ("order", "KeyError")),
    "a counted suspect is never sent": Mutant(Work, "_counted", never, ("loss", "stuck")),
    "drops what was claimed anew": Mutant(Hand, "fenced", all_shards, ("order", "loss")),
    "lets go of what is in hand again": Mutant(
        Hand, "settled", let_go_of_all, ("claim", "KeyError", "twice")
    ),
    "takes what has just left the hand": Mutant(
        Hand, "__contains__", only_in_hand, ("loss", "order", "twice")
    ),
    "settles what it dropped": Mutant(Hand, "drop", drop_in_hand_only, ("KeyError", "claim")),
}


@pytest.mark.parametrize("rule", WORK_MUTANTS)
def test_work_without_one_of_its_rules_is_caught(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = WORK_MUTANTS[rule]
    monkeypatch.setattr(mutant.of, mutant.method, mutant.instead)

    def run(chance: Random) -> None:
        Simulation(chance, together=chance.random() < 0.5).run(STEPS)

    violation = caught(run, mutant.known)
    assert any(seen in violation for seen in mutant.seen)


# Reader and Turns without one of their rules

READER_PLAN = Reader.plan


class Forgetful(set[Any]):
    def add(self, element: object) -> None:
        """Remember nothing."""


def no_open_transactions(text: str) -> Snapshot:
    return Snapshot(text.split(":")[1], ())


def only_what_has_no_turn(
    reader: Reader, seq: int, shard: int, tenant_id: str, passed_over: Container[str]
) -> bool:
    if tenant_id in passed_over:
        reader.turns.add(shard, tenant_id, seq - 1)
        return False
    return reader.turns.after(shard, tenant_id) is None


def without_a_pause(
    reader: Reader, seq: int, shard: int, tenant_id: str, passed_over: Container[str]
) -> bool:
    after = reader.turns.after(shard, tenant_id)
    return tenant_id not in passed_over and (after is None or seq <= after)


def exhaust(turns: Turns, shard: int, tenant_id: str, after: int) -> None:
    turns.exhausted(shard, tenant_id)


def only_new_pairs(turns: Turns, shard: int, tenant_id: str, after: int) -> None:
    if (shard, tenant_id) not in turns._after:
        turns._shards.setdefault(tenant_id, deque()).append(shard)
        turns._after[shard, tenant_id] = after


def sweep_without_pairs(reader: Reader, snapshot: Snapshot, pairs: Iterable[Pair]) -> None:
    reader.since = snapshot


def newest_snapshot(
    reader: Reader, shards: Iterable[int], snapshot: Snapshot, pairs: Iterable[Pair]
) -> None:
    reader._known |= set(shards)
    reader.since = snapshot
    for pair in pairs:
        reader.turns.add(*pair)


def read_anything_again(reader: Reader, shard: int, tenant_id: str, seq: int) -> None:
    reader.turns.add(shard, tenant_id, seq - 1)


def look_never_again(reader: Reader, in_hand: Container[int]) -> None:
    reader._met.clear()


def all_pairs(reader: Reader, pairs: Sequence[Pair]) -> Iterator[tuple[int, str]]:
    return ((pair.shard, pair.tenant_id) for pair in pairs)


def plan_as_before(
    reader: Reader, since: Snapshot, limit: int, passed_over: Container[str]
) -> Plan:
    plan = READER_PLAN(reader, since, limit, passed_over)
    reader._gone_back = Forgetful()
    return plan


def keep_all(reader: Reader, shards: Iterable[int]) -> None:
    """Remember shards that are gone."""


READER_MUTANTS = {
    "forgets late commits": Mutant(
        Snapshot, "parse", staticmethod(no_open_transactions), ("loss",)
    ),
    "leaves what came late to the turns": Mutant(
        Reader, "_takes", only_what_has_no_turn, ("loss", "order")
    ),
    "takes what a turn will read": Mutant(Reader, "_takes", true, ("order", "pause")),
    "forgets what a pause passed over": Mutant(
        Reader, "_takes", without_a_pause, ("loss", "order")
    ),
    "takes a full turn for the last": Mutant(Turns, "advance", exhaust, ("loss", "order")),
    "never goes back in a pair": Mutant(Turns, "add", only_new_pairs, ("loss", "order")),
    "sweeps nothing up": Mutant(Reader, "swept", sweep_without_pairs, ("loss", "order")),
    "a discovery moves the snapshot": Mutant(
        Reader, "discovered", newest_snapshot, ("loss", "order")
    ),
    "reads again what it does not own": Mutant(
        Reader, "read_again", read_anything_again, ("lease",)
    ),
    "forgets what came back in hand": Mutant(
        Reader, "_read_again_what_was_met", look_never_again, ("loss", "order")
    ),
    "a turn hides what is read again": Mutant(Reader, "_still_due", all_pairs, ("loss", "order")),
    "a claim passes what it goes back to": Mutant(
        Reader, "plan", plan_as_before, ("loss", "order")
    ),
    "remembers shards that are gone": Mutant(Reader, "lose", keep_all, ("lease", "loss", "order")),
}


@pytest.mark.parametrize("rule", READER_MUTANTS)
def test_a_reader_without_one_of_its_rules_is_caught(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = READER_MUTANTS[rule]
    monkeypatch.setattr(mutant.of, mutant.method, mutant.instead)

    def run(chance: Random) -> None:
        ReaderSimulation(chance).run(STEPS)

    assert any(seen in caught(run) for seen in mutant.seen)
