"""Lanes: batches, held keys and lost partitions."""

from collections import defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pillarbox.consumer.lane import InHand, Lane, Line, in_hand, lane_of
from pillarbox.event.incoming import Unreadable
from tests.consumer.hands import item, positions


def filled(*items: InHand) -> Lane:
    lane = Lane()
    for found in items:
        lane.put(found)
    return lane


def test_a_batch_is_taken_in_the_order_of_arrival() -> None:
    lane = filled(item(1, "a"), item(2, "b"), item(3, "a"), item(4, "c"))

    assert positions(lane.take(0.0, 3)) == [1, 2, 3]


def test_a_lane_has_one_batch_at_work() -> None:
    lane = filled(item(1), item(2))
    lane.take(0.0, 1)

    assert lane.take(0.0, 1) == []
    lane.finish()
    assert positions(lane.take(0.0, 1)) == [2]


def test_a_batch_is_of_one_tenant_and_the_others_come_next() -> None:
    lane = filled(item(1), item(2, tenant="other"), item(3), item(4, tenant="other"))

    assert positions(lane.take(0.0, 9)) == [1, 3]
    lane.finish()
    assert positions(lane.take(0.0, 9)) == [2, 4]


def test_a_held_key_waits_while_others_go_on() -> None:
    first, second = item(1, "a"), item(2, "a")
    lane = filled(first, item(3, "b"))
    lane.take(0.0, 1)

    lane.put(second)
    lane.finish([first], {first.line: 5.0})

    assert positions(lane.take(4.9, 9)) == [3]
    lane.finish()
    assert lane.take(4.9, 9) == []
    assert lane.next_due() == 5.0
    assert positions(lane.take(5.0, 9)) == [1, 2]


def test_messages_without_a_key_hold_up_nobody() -> None:
    first, second = item(1, None), item(2, None)
    lane = filled(first, second)
    lane.take(0.0, 9)

    lane.finish([first], {first.line: 5.0})

    assert lane.take(0.0, 9) == []
    assert positions(lane.take(5.0, 9)) == [1]


def test_a_message_that_must_be_alone_has_a_batch_for_itself() -> None:
    suspect = item(2, "b")
    suspect.alone = True
    lane = filled(item(1, "a"), suspect, item(3, "c"))

    batches = []
    for _ in range(3):
        batches.append(positions(lane.take(0.0, 9)))
        lane.finish()

    assert batches == [[1], [2], [3]]


def test_a_lost_partition_takes_its_messages_with_it() -> None:
    at_work, waiting, other = item(1, "a"), item(2, "a"), item(3, "b", partition="q")
    lane = filled(at_work, waiting, other)
    lane.take(0.0, 1)

    lost = lane.lose({"p"})
    lane.finish([at_work], {at_work.line: 1.0})

    assert positions(lost) == [1, 2]
    assert positions(lane.take(9.0, 9)) == [3]
    lane.finish()
    assert len(lane) == 0


def test_the_followers_of_a_line_are_those_that_wait_behind_it() -> None:
    first = item(1, "a")
    lane = filled(first, item(2, "a"), item(3, "b"), item(4, "a"))
    lane.take(0.0, 1)

    assert positions(lane.followers(first.line)) == [2, 4]
    lane.remove(lane.followers(first.line))
    lane.finish()
    assert positions(list(lane)) == [3]


def test_the_lane_of_a_key_is_always_the_same_and_keys_spread() -> None:
    lines: list[Line] = [("acme", f"key-{number}", "") for number in range(1_000)]
    chosen = [lane_of(line, 8) for line in lines]

    assert chosen == [lane_of(line, 8) for line in lines]
    assert all(80 <= chosen.count(lane) <= 180 for lane in range(8))


def test_what_cannot_be_read_has_no_key() -> None:
    found = in_hand(item(1, "k").delivery, Unreadable("undecodable", "in this test"))

    assert found.key is None
    assert found.tenant_id == "default"


class Lanes(RuleBasedStateMachine):
    """Put, take, finish, hold and lose at random: each line keeps its order, and nothing is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane()
        self.now = 0.0
        self.put_in: dict[Line, list[int]] = defaultdict(list)
        self.done: dict[Line, list[int]] = defaultdict(list)
        self.lost: set[int] = set()
        self.batch: list[InHand] = []
        self.count = 0

    @rule(
        key=st.sampled_from(["a", "b", "c", None]),
        tenant=st.sampled_from(["acme", "other"]),
        partition=st.sampled_from("pq"),
        times=st.integers(1, 4),
    )
    def put(self, key: str | None, tenant: str, partition: str, times: int) -> None:
        for _ in range(times):
            self.count += 1
            # A key stays in one partition.
            new = item(self.count, key, tenant=tenant, partition="p" if key == "a" else partition)
            self.put_in[new.line].append(self.count)
            self.lane.put(new)

    @precondition(lambda self: not self.batch)
    @rule(most=st.integers(1, 6))
    def take(self, most: int) -> None:
        self.batch = self.lane.take(self.now, most)
        assert len({found.tenant_id for found in self.batch}) <= 1

    @precondition(lambda self: self.batch)
    @rule(data=st.data())
    def finish(self, data: Any) -> None:
        """Each message is done, goes back or is held; nothing is done behind one that is not."""
        back: list[InHand] = []
        held: dict[Line, float] = {}
        stopped: set[Line] = set()
        for found in self.batch:
            fate = data.draw(st.sampled_from(["done", "done", "back", "hold"]))
            if found.line in stopped or fate != "done":
                if fate == "hold" and found.line not in stopped:
                    held[found.line] = self.now + data.draw(st.floats(0, 10))
                stopped.add(found.line)
                back.append(found)
            elif not found.lost:
                self.done[found.line].append(int(found.delivery.position))
        self.lane.finish(back, held)
        self.batch = []

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(partition=st.sampled_from("pq"))
    def lose(self, partition: str) -> None:
        self.lost.update(positions(self.lane.lose({partition})))

    @rule(line=st.sampled_from([("acme", "a", ""), ("other", "b", "")]))
    def move_followers(self, line: Line) -> None:
        if not any(found.line == line for found in self.batch):
            followers = self.lane.followers(line)
            self.lane.remove(followers)
            self.done[line].extend(positions(followers))

    @invariant()
    def each_line_keeps_its_order(self) -> None:
        for numbers in self.done.values():
            assert numbers == sorted(set(numbers))

    @invariant()
    def nothing_is_lost_and_nothing_is_there_twice(self) -> None:
        here = positions(list(self.lane))
        done = [number for numbers in self.done.values() for number in numbers]
        all_put = [number for numbers in self.put_in.values() for number in numbers]
        assert len(set(here)) == len(here)
        assert not set(here) & set(done)
        assert set(here) | set(done) | self.lost == set(all_put)
        assert not set(done) & self.lost

    def teardown(self) -> None:
        """What is left comes out in the end, in the order of its line."""
        self.lane.finish([found for found in self.batch if not found.lost])
        while batch := self.lane.take(self.now + 1_000, 3):
            for found in batch:
                self.done[found.line].append(int(found.delivery.position))
            self.lane.finish()
        self.each_line_keeps_its_order()
        assert len(self.lane) == 0


TestLanes = Lanes.TestCase
TestLanes.settings = settings(max_examples=60, stateful_step_count=30)
