"""What the contract suite itself promises: it skips with a sentence, and only it knows pytest."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

import pillarbox.testing
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.message_bus import Capabilities, MessageBus
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import MEMORY
from pillarbox.testing import BusContract, message
from pillarbox.testing.contract.powers import refusing
from tests.bus.rig import Stored
from tests.bus.rig_memory import MemoryRig

WITHOUT = """
import sys
for name in ("pytest", "pytest_asyncio"):
    sys.modules[name] = None
    try:
        import pillarbox.testing
    except ModuleNotFoundError as error:
        print(error)
    del sys.modules[name]
"""


class PlainRig:
    """A rig without a power."""

    name = "plain"

    def bus(self, **_: object) -> MemoryMessageBus:
        return MemoryMessageBus()

    async def read(self, topic: str) -> list[Stored]:
        raise NotImplementedError(topic)


class Forgetful(MemoryMessageBus):
    """A bus that acknowledges the last message of a call and does not keep it."""

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        await super().publish(batch[:-1], one_by_one=one_by_one)
        return [ACCEPTED] * len(batch)


class Hasty(MemoryMessageBus):
    """A bus that says it keeps a key's order in flight, and goes on after a refusal."""

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        return [
            (await super(Hasty, self).publish([sent], one_by_one=one_by_one))[0] for sent in batch
        ]


class Copying(MemoryMessageBus):
    """A bus that says it removes duplicates, and forgets what it has stored."""

    def _store(self, message: MessageEnvelope) -> None:
        self.messages.append(message)


class OneBusRig(MemoryRig):
    """A rig that makes the same bus again."""

    def bus(self, **_: object) -> MessageBus:
        return self.made[0]


def test_the_public_names_are_sorted_and_there() -> None:
    names = pillarbox.testing.__all__

    assert names == sorted(names)
    assert all(getattr(pillarbox.testing, name).__doc__ for name in names if name != "Binding")


def test_a_power_that_a_rig_lacks_skips_with_a_sentence() -> None:
    with pytest.raises(pytest.skip.Exception, match="the rig of plain cannot have a message"):
        refusing(PlainRig())


def test_importing_pillarbox_does_not_import_pytest() -> None:
    script = "import sys, pillarbox, pillarbox.cli.main; print('pytest' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout == "False\n"


def test_without_pytest_the_import_says_what_to_install() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )

    remedy = "run `pip install 'pillarbox[testing]'`"
    assert ran.stdout.splitlines() == [
        f"pillarbox.testing needs {name}; {remedy}" for name in ("pytest", "pytest_asyncio")
    ]


async def test_a_bus_that_loses_what_it_acknowledged_is_caught() -> None:
    rig, bus = MemoryRig(), Forgetful()
    rig.made.append(bus)

    with pytest.raises(AssertionError):
        await BusContract().test_the_messages_of_a_key_are_stored_in_the_order_of_their_batch(
            rig, bus
        )


async def test_a_bus_that_goes_on_after_a_refusal_is_caught_by_its_flag() -> None:
    rig, bus = MemoryRig(), Hasty(Capabilities(MEMORY, pipelines_keys=True))
    bus.fail_with(lambda sent: sent.event_id in rig.refused, Refused("odd", "in this test"))
    rig.made.append(bus)

    with pytest.raises(AssertionError):
        await BusContract().test_a_refused_message_in_the_middle_of_a_key_is_answered_for(rig, bus)


async def test_a_bus_that_stores_what_it_could_not_take_is_caught() -> None:
    honest, lying = MemoryMessageBus(), MemoryMessageBus()
    lying.fail_with(lambda _: True, Unavailable("down", "in this test"), store=True)
    closing = BusContract().test_closing_while_messages_are_under_way_answers_every_call_and_truly

    await closing(MemoryRig(made=[honest]), honest, 1)
    with pytest.raises(AssertionError):
        await closing(MemoryRig(made=[lying]), lying, 1)


async def test_a_bus_that_keeps_copies_is_caught_by_its_flag() -> None:
    honest = MemoryMessageBus(Capabilities(MEMORY, deduplicates=True))
    copying = Copying(Capabilities(MEMORY, deduplicates=True))
    repeat = BusContract().test_a_repeated_message_is_harmless_and_removed_if_the_bus_says_so

    await repeat(OneBusRig(made=[honest]), honest)
    with pytest.raises(AssertionError):
        await repeat(OneBusRig(made=[copying]), copying)


def test_an_ordinary_message_has_an_id_of_its_own() -> None:
    assert message("t").event_id != message("t").event_id
