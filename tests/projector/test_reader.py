"""What a reader takes of a claim's rows, case by case."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from pillarbox.projector.postgres.reader import Plan, Reader, Row, Snapshot, within
from pillarbox.projector.store import NO_LIMITS
from pillarbox.projector.turns import Pair

BEFORE, AFTER = Snapshot.parse("10:10:"), Snapshot.parse("10:12:10")


def reader(*pairs: Pair) -> Reader:
    made = Reader()
    made.discovered([0, 1], BEFORE, pairs)
    return made


def fed(seq: int, tenant_id: str = "acme", shard: int = 0) -> Row:
    return seq, shard, tenant_id, 0


def in_turn(seq: int, tenant_id: str = "acme", turn: int = 1) -> Row:
    return (seq, 0, tenant_id, turn)


def digest(
    made: Reader,
    *rows: Row,
    limit: int = 160,
    in_hand: AbstractSet[int] = frozenset(),
    passed_over: Collection[str] = (),
    plan: Plan | None = None,
    most: Mapping[str, int] = NO_LIMITS,
) -> list[int]:
    plan = plan or made.plan(BEFORE, limit, passed_over, most)
    places = made.digest(plan, AFTER, rows, in_hand=in_hand, passed_over=passed_over, most=most)
    return [rows[place][0] for place in places]


def test_a_snapshot_tells_what_was_not_finished() -> None:
    assert Snapshot.parse("7:12:8,11") == Snapshot("12", ("8", "11"))
    assert Snapshot.parse("7:7:") == Snapshot("7", ())


def test_a_new_row_is_taken_and_the_snapshot_moves_on() -> None:
    made = reader()

    assert digest(made, fed(5), fed(3)) == [3, 5]
    assert made.since == AFTER


def test_beside_a_backlog_there_is_always_room_for_something_new() -> None:
    for limit in range(2, 20):
        plan = reader(Pair(0, "acme", 0)).plan(BEFORE, limit, ())

        assert plan.fits >= 1
        assert plan.fits + sum(plan.quotas) <= limit


def test_a_new_row_above_what_was_read_of_its_pair_is_left_to_the_turn() -> None:
    made = reader(Pair(0, "acme", 10), Pair(1, "acme", 10))

    assert digest(made, fed(11, shard=1), fed(10, shard=1), plan=Plan(BEFORE, 9)) == [10]


def test_a_row_in_hand_is_dropped() -> None:
    made = reader(Pair(0, "acme", 0))

    assert digest(made, in_turn(1), in_turn(2), fed(7, "bolt"), in_hand={2, 7}) == [1]


def test_a_number_in_hand_may_be_of_another_event_when_the_backend_is_new() -> None:
    """After a failover that lost its end the new event was passed over for good."""
    made = reader(Pair(0, "acme", 0))
    made.forget()
    made.discovered([0, 1], BEFORE, [Pair(0, "acme", 4)])
    assert digest(made, in_turn(5), in_turn(6), in_hand={5}) == [6]
    assert digest(made, in_hand={5}) == []

    digest(made, in_hand=set())

    assert made.plan(BEFORE, 160, ()).pairs == [Pair(0, "acme", 4)]


def test_a_row_that_came_back_in_hand_is_read_again_when_it_has_left() -> None:
    made = reader()
    digest(made, fed(7), in_hand={7})

    digest(made)

    assert made.turns.after(0, "acme") == 6


def test_a_row_of_a_paused_tenant_puts_its_pair_into_the_turns() -> None:
    made = reader()

    assert digest(made, fed(7), fed(5), passed_over={"acme"}) == []
    assert made.turns.after(0, "acme") == 4


def test_a_pair_that_yields_less_than_its_quota_is_exhausted() -> None:
    made = reader(Pair(0, "acme", 0), Pair(0, "bolt", 0))
    plan = Plan(BEFORE, 1, made.turns.next(2), [2, 2])

    digest(made, in_turn(1), in_turn(2), in_turn(3, "bolt", turn=2), plan=plan)

    assert made.turns.after(0, "acme") == 2
    assert made.turns.after(0, "bolt") is None


def test_rows_of_a_pair_that_begins_earlier_by_now_are_left_to_its_next_turn() -> None:
    made = reader(Pair(0, "acme", 4))
    plan = made.plan(BEFORE, 160, ())
    made.read_again(0, "acme", 3)

    assert digest(made, in_turn(5), plan=plan) == []
    assert made.turns.after(0, "acme") == 2


def test_a_row_of_a_shard_that_is_lost_is_not_read_again() -> None:
    made = reader()
    made.lose([0])

    made.read_again(0, "acme", 3)

    assert not made.plan(BEFORE, 160, ()).pairs


def test_shards_that_are_gone_are_discovered_anew() -> None:
    made = reader(Pair(0, "acme", 4), Pair(1, "acme", 4))

    assert made.undiscovered([1]) == []
    assert made.undiscovered([0, 1]) == [0]
    assert made.turns.after(0, "acme") is None


def test_a_later_discovery_keeps_the_earlier_snapshot() -> None:
    made = reader()

    made.discovered([2], AFTER, [])

    assert made.since == BEFORE


def test_a_new_backend_is_discovered_from_the_beginning() -> None:
    made = reader(Pair(0, "acme", 4))

    made.forget()

    assert made.since is None
    assert made.undiscovered([0, 1]) == [0, 1]
    assert len(made.turns) == 0


def test_with_a_backlog_most_of_a_claim_is_for_the_turns() -> None:
    made = reader(Pair(0, "acme", 0), Pair(0, "bolt", 0))

    plan = made.plan(BEFORE, 800, ())

    assert (plan.fits, plan.quotas) == (100, [350, 350])
    assert made.plan(BEFORE, 800, {"acme", "bolt"}).fits == 800


def test_the_quotas_of_a_limited_tenant_are_cut_and_those_of_others_are_not() -> None:
    acme, bolt = [Pair(shard, "acme", 0) for shard in range(3)], Pair(0, "bolt", 0)
    asked = [(acme[0], 16), (acme[1], 16), (acme[2], 16), (bolt, 16)]

    assert within(asked, {"acme": 20}) == [(acme[0], 16), (acme[1], 4), (bolt, 16)]


def test_more_news_of_a_limited_tenant_than_it_may_give_is_left_to_its_turns() -> None:
    made = reader()

    assert digest(made, fed(5), fed(3), fed(4, "bolt"), most={"acme": 1}) == [4]
    assert made.turns.after(0, "acme") == 2


def test_as_much_news_of_a_limited_tenant_as_it_may_give_is_taken() -> None:
    made = reader()

    assert digest(made, fed(5), fed(3), most={"acme": 2}) == [3, 5]


def test_what_came_late_to_a_limited_tenant_is_taken_beside_its_turn() -> None:
    made = reader(Pair(0, "acme", 10))

    assert digest(made, fed(7), fed(8), in_turn(11), most={"acme": 1}) == [7, 8, 11]
    assert made.turns.after(0, "acme") == 11


def test_of_a_limited_tenant_the_shard_furthest_behind_comes_first() -> None:
    asked = [(Pair(1, "acme", 50), 10), (Pair(2, "acme", 7), 10), (Pair(3, "globex", 60), 10)]

    assert within(asked, {"acme": 4}) == [(Pair(2, "acme", 7), 4), (Pair(3, "globex", 60), 10)]
