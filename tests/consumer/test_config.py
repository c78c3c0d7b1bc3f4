"""The settings of a consumer, and the signals and keys of its handlers."""

import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import Context, StoredTask, Task
from pillarbox.consumer.signals import Drop, Park, Retry
from pillarbox.errors import InvalidConfig, InvalidEvent, PillarboxError
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import Flaw

ROOT = Path(__file__).parents[2]
SETTINGS_PAGE = (ROOT / "docs" / "reference" / "settings.md").read_text()
GUIDE = (ROOT / "docs" / "guides" / "consume.md").read_text()


def test_arguments_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[consumer]\nlanes = 2\nbatch_size = 7\non_parked = "pass"\n')
    environ = {
        "PILLARBOX_SETTINGS": str(file),
        "PILLARBOX_CONSUMER_BATCH_SIZE": "8",
        "PILLARBOX_CONSUMER_HOLD_LIMIT": "2.5",
        "PILLARBOX_CONSUMER_KEEP_PAYLOAD": "true",
        "PILLARBOX_PROJECTOR_BATCH_SIZE": "9",
    }

    found = ConsumerConfig.from_env(environ, max_attempts=1)

    expected = ConsumerConfig(
        lanes=2,
        batch_size=8,
        on_parked="pass",
        hold_limit=2.5,
        keep_payload=True,
        max_attempts=1,
    )
    assert found == expected


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("lanes", 0, "lanes is 0; use a whole number from 1 to 1024"),
        ("lanes", True, "lanes is True"),
        ("batch_size", -1, "batch_size is -1"),
        ("batch_size", 10**9, "batch_size is 1000000000"),
        ("window", 99, "window is 99, and batch_size is 100; make it at least batch_size"),
        ("max_attempts", 0, "max_attempts is 0"),
        ("retry_delay", 0, "retry_delay is 0"),
        ("retry_delay_max", 0.5, "retry_delay_max is 0.5, and retry_delay is 1"),
        ("hold_limit", float("nan"), "hold_limit is nan"),
        ("stop_timeout", "30", "stop_timeout is '30'"),
        ("on_parked", "skip", "on_parked is 'skip'; use one of hold, pass"),
        ("on_stale", None, "on_stale is None; use one of apply, drop, park"),
        ("keep_payload", 1, "keep_payload is 1"),
        ("retention_days", 0, "retention_days is 0"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_with_its_numbers(
    setting: str, value: Any, told: str
) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(told)):
        ConsumerConfig(**{setting: value})


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(InvalidConfig, match="PILLARBOX_CONSUMER_LANES is 'many'"):
        ConsumerConfig.from_env({"PILLARBOX_CONSUMER_LANES": "many"})


def test_a_setting_of_the_file_that_nobody_knows_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[consumer]\nlane = 2\n")

    with pytest.raises(InvalidConfig, match=r"consumer\.lane is no setting; use one of lanes"):
        ConsumerConfig.from_env({}, file=file)


def test_a_message_is_not_held_longer_than_the_broker_allows() -> None:
    ConsumerConfig(hold_limit=9).check_against(timedelta(seconds=10))
    ConsumerConfig(hold_limit=9).check_against(None)

    with pytest.raises(InvalidConfig, match="is 10 s, and the broker delivers again after 10 s"):
        ConsumerConfig(hold_limit=10).check_against(timedelta(seconds=10))


def test_every_setting_stands_in_the_reference_with_its_default() -> None:
    section = SETTINGS_PAGE.partition("## The consumer\n")[2].partition("\n## ")[0]
    told: dict[str, str] = {}
    for names, defaults in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", section, re.MULTILINE):
        values = [value.strip(" `") for value in defaults.split(",")]
        told |= dict(zip(re.findall(r"`(\w+)`", names), values, strict=True))

    config = ConsumerConfig()
    assert told == {
        item.name: _shown(getattr(config, item.name)) for item in fields(ConsumerConfig)
    }


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_every_code_of_an_unreadable_message_stands_in_the_guide() -> None:
    told = re.findall(r"^\| `([a-z-]+)` \|", GUIDE, re.MULTILINE)

    assert sorted(told) == sorted(get_args(Flaw))


def test_signals_are_no_errors_of_pillarbox() -> None:
    signals = [Retry(timedelta(seconds=1)), Park("odd"), Drop("known")]

    assert not any(isinstance(signal, PillarboxError) for signal in signals)
    assert [signal.reason for signal in signals] == ["the handler asked to wait", "odd", "known"]
    with pytest.raises(InvalidConfig, match=r"Retry\.after is negative"):
        Retry(timedelta(seconds=-1))


def context(**changes: str) -> Context:
    envelope = MessageEnvelope(
        changes.get("message_id", "e-1"), "OrderCreated", tenant_id=changes.get("tenant", "acme")
    )
    return Context(
        consumer=changes.get("consumer", "payments"), envelope=envelope, session=AsyncSession()
    )


def test_an_effect_key_is_the_same_each_time_and_another_for_each_effect() -> None:
    key = context().effect_key("charge")

    assert key == context().effect_key("charge")
    assert re.fullmatch(r"[0-9a-f]{64}", key)
    others = {
        context().effect_key("refund"),
        context(consumer="mails").effect_key("charge"),
        context(tenant="other").effect_key("charge"),
        context(message_id="e-2").effect_key("charge"),
    }
    assert len(others | {key}) == 5


def test_an_effect_key_is_the_same_in_every_release() -> None:
    """The remote side knows old ones: `printf 'acme\\0payments\\0e-1\\0charge' | sha256sum`."""
    key = context(tenant="acme", consumer="payments", message_id="e-1").effect_key("charge")

    assert key == "d3b2fc8d9e1a2f71c0da508adab1bc70f95af47120faccb348b589ba50dc7f4c"


def test_a_task_waits_in_the_context_for_the_commit() -> None:
    async def send(order_id: str) -> None:
        """Send a receipt."""

    ctx = context()

    ctx.after_commit("receipt", order_id="o-1")
    ctx.after_commit(Task("receipt", send), order_id="o-2")

    assert ctx.tasks == [
        StoredTask("receipt", '{"order_id":"o-1"}'),
        StoredTask("receipt", '{"order_id":"o-2"}'),
    ]
    with pytest.raises(InvalidEvent, match=r"payload\.order_id has the type object"):
        ctx.after_commit("receipt", order_id=object())
