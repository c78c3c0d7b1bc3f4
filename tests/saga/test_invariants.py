"""I20 over random schedules: one outcome for each step, every saga accounted for, no stray undoing."""

import random
from collections import Counter
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import select

from pillarbox.ops import SagaOps
from pillarbox.saga.machine import (
    ENDED,
    OPEN,
    Move,
    Outcome,
    Part,
    Place,
    Progress,
    State,
    StepPlan,
    Wish,
    answered,
    begin,
    timed_out,
    wished,
)
from pillarbox.schema.tables import saga_step
from tests.saga.shop import Shop, careful_order
from tests.support.database import Database, on

STEPS = st.builds(
    StepPlan,
    name=st.just("s"),
    undoes=st.booleans(),
    awaits_undo=st.booleans(),
    tries=st.integers(1, 3),
    undo_tries=st.integers(1, 3),
)


class Sagas(RuleBasedStateMachine):
    """Any number of sagas of any shape, with replies, timers and wishes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.sagas: list[tuple[tuple[StepPlan, ...], Progress]] = []
        self.sent: list[list[Place]] = []

    @rule(plan=st.lists(STEPS, min_size=1, max_size=4).map(tuple))
    def start(self, plan: tuple[StepPlan, ...]) -> None:
        self.sagas.append((plan, begin(plan).progress))
        self.sent.append([*begin(plan).sends])

    @precondition(lambda self: self.sagas)
    @rule(data=st.data())
    def reply(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.sagas) - 1))
        place = data.draw(st.sampled_from(self.sent[number]))
        plan, progress = self.sagas[number]
        good, sent = data.draw(st.booleans()), self.sent[number].count(place)
        self._take(number, answered(plan, progress, place, good=good, sent=sent))

    @precondition(lambda self: self.sagas)
    @rule(data=st.data())
    def time_is_up(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.sagas) - 1))
        self._take(number, timed_out(*self.sagas[number]))

    @precondition(lambda self: self.sagas)
    @rule(data=st.data(), wish=st.sampled_from(Wish))
    def wish(self, data: st.DataObject, wish: Wish) -> None:
        number = data.draw(st.integers(0, len(self.sagas) - 1))
        move = wished(*self.sagas[number], wish)
        assert (move is None) is (
            self.sagas[number][1].state in ENDED
            or (wish is Wish.COMPENSATE and self._place(number).part is Part.UNDO)
        )
        if move is not None:
            self._take(number, move)

    def _place(self, number: int) -> Place:
        found = self.sagas[number][1].waits_for
        assert found is not None
        return found

    def _take(self, number: int, move: Move) -> None:
        """Hold every move to what was before it."""
        plan, before = self.sagas[number]
        after = move.progress
        for step in range(len(plan)):
            for part in Part:
                old = before.outcome(Place(step, part))
                assert old is None or old is after.outcome(Place(step, part))
        if before.state in ENDED:
            assert after == before
            assert not move.sends
        self.sent[number] += move.sends
        self.sagas[number] = plan, after

    @invariant()
    def every_saga_is_accounted_for(self) -> None:
        for (plan, progress), sent in zip(self.sagas, self.sent, strict=True):
            assert (progress.waits_for is not None) is (progress.state in OPEN)
            for place in sent:
                if place.part is Part.UNDO:
                    assert Place(place.step, Part.DO) in sent
                    assert plan[place.step].undoes
                    assert self._may_have_effect(progress, sent, place.step)
                if place != progress.waits_for:
                    assert progress.outcome(place) is not None
            if progress.state is State.COMPLETED:
                assert set(progress.done) <= {Outcome.OK, Outcome.SKIPPED}
            if progress.state is State.COMPENSATED:
                assert progress.cause is not None
                for number, (step, undone) in enumerate(zip(plan, progress.undone, strict=True)):
                    effect = self._may_have_effect(progress, sent, number)
                    assert (undone is not None) is (step.undoes and effect)

    @staticmethod
    def _may_have_effect(progress: Progress, sent: list[Place], step: int) -> bool:
        done = progress.done[step]
        if done is Outcome.FAILED:
            return sent.count(Place(step, Part.DO)) > 1
        return done in (Outcome.OK, Outcome.TIMED_OUT, Outcome.ABANDONED)


TestSagas = Sagas.TestCase
TestSagas.settings = settings(
    max_examples=150, stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_every_saga_is_accounted_for_after_any_disorder(
    database: Database, seed: int
) -> None:
    shop, chance = Shop(database, careful_order), random.Random(seed)
    await shop.clear()
    orders = [f"o-{n}" for n in range(25)]
    shop.refuses |= {o for o in orders if chance.random() < 0.2}
    shop.refuses |= {f"pay {o}" for o in orders if chance.random() < 0.3}
    await shop.order(*orders)
    ops = SagaOps(database.engine, actor="chaos")
    names = list(shop.box.consumers)
    for _ in range(8):
        await shop.publish()
        await shop.box.consumers[chance.choice(names)].drain()
        for envelope in list(shop.bus.messages):
            if "Inventory" in envelope.event_type and chance.random() < 0.1:
                await shop.bus.publish([envelope._replace(event_id=str(uuid4()))])
        shop.bus.redeliver(lambda _: chance.random() < 0.2)
        if chance.random() < 0.4:
            await shop.time_passes()
        for saga in chance.sample(list(await ops.sagas()), 1) if await ops.sagas() else []:
            act = chance.choice([ops.resume, ops.skip, ops.cancel])
            await act(saga.saga_id, reason="chaos")
    await shop.settle()

    states = Counter(row.state for row in await shop.rows())
    assert sum(states.values()) == len(orders)
    assert set(states) <= {"COMPLETED", "COMPENSATED", "CANCELLED", "STUCK"}, states
    async with database.sessions() as session:
        steps = (await session.execute(select(saga_step))).all()
    begun = {(row.saga_id, row.step, row.part) for row in steps}
    assert all((row.saga_id, row.step, "do") in begun for row in steps)
    stuck = {row.saga_id for row in await shop.rows() if row.state == "STUCK"}
    assert all(row.outcome for row in steps if row.saga_id not in stuck)
