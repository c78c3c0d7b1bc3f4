"""The settings of a projector: where they come from, and which are refused."""

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pillarbox.errors import InvalidConfig, InvalidKey
from pillarbox.projector.config import OutboxProjectorConfig

NOTHING: dict[str, str] = {}


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "pillarbox.toml"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("setting", "value", "range_"),
    [
        ("batch_size", 0, "1 to 10000"),
        ("batch_size", 10_001, "1 to 10000"),
        ("batch_bytes", 1_023, "1024 to 268435456"),
        ("batches_in_hand", 65, "1 to 64"),
        ("max_retry_attempts", 0, "1 to 1000"),
        ("retry_delay", 0.0, "0.001 to 86400"),
        ("sleep_busy", float("nan"), "0.001 to 3600"),
        ("sleep_idle", float("inf"), "0.001 to 3600"),
        ("lease", 0.5, "1 to 3600"),
        ("stop_timeout", -1, "0.1 to 3600"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(
    setting: str, value: float, range_: str
) -> None:
    values: dict[str, Any] = {setting: value}

    with pytest.raises(InvalidConfig) as refused:
        OutboxProjectorConfig(**values)

    assert refused.value.setting == setting
    assert repr(value) in str(refused.value)
    assert range_ in str(refused.value)


@pytest.mark.parametrize(
    "setting", ["batch_size", "batch_bytes", "batches_in_hand", "max_retry_attempts"]
)
def test_a_count_that_is_not_whole_is_refused(setting: str) -> None:
    values: dict[str, Any] = {setting: 60.5}

    with pytest.raises(InvalidConfig, match="whole number"):
        OutboxProjectorConfig(**values)


@pytest.mark.parametrize("value", ["false", 0, None])
def test_an_order_that_is_neither_true_nor_false_is_refused(value: object) -> None:
    values: dict[str, Any] = {"ordered": value}

    with pytest.raises(InvalidConfig, match="ordered is"):
        OutboxProjectorConfig(**values)


def test_an_idle_sleep_below_the_busy_one_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidConfig, match=r"sleep_idle is 0.1, and sleep_busy is 0.25"):
        OutboxProjectorConfig(sleep_busy=0.25, sleep_idle=0.1)


def test_a_longest_delay_below_the_first_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidConfig, match=r"retry_delay_max is 2, and retry_delay is 3"):
        OutboxProjectorConfig(retry_delay=3, retry_delay_max=2)


@pytest.mark.parametrize("seconds", [15, 30])
def test_a_lease_that_a_publish_may_outlive_is_refused_with_both_numbers(seconds: int) -> None:
    config = OutboxProjectorConfig(lease=15)

    with pytest.raises(InvalidConfig, match=rf"lease is 15 s, and the bus may take {seconds} s"):
        config.check_against(timedelta(seconds=seconds))


def test_a_lease_longer_than_a_publish_is_fine() -> None:
    OutboxProjectorConfig(lease=15).check_against(timedelta(seconds=14.9))


@pytest.mark.parametrize("setting", ["on_dead", "on_sent", "claim"])
def test_a_choice_that_does_not_exist_is_refused_with_the_choices(setting: str) -> None:
    values: dict[str, Any] = {setting: "perhaps"}

    with pytest.raises(InvalidConfig, match=r"is 'perhaps'; use one of \w+, \w+"):
        OutboxProjectorConfig(**values)


def test_a_default_tenant_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidKey):
        OutboxProjectorConfig(default_tenant_id="a,b")


def test_a_default_tenant_that_no_row_would_have_is_refused_with_both_names() -> None:
    with pytest.raises(InvalidConfig, match="is acme, and rows that name no tenant have default"):
        OutboxProjectorConfig(default_tenant_id="acme")


def test_without_anything_the_defaults_hold() -> None:
    assert OutboxProjectorConfig.from_env(NOTHING) == OutboxProjectorConfig()


def test_every_setting_has_its_variable() -> None:
    environ = {
        f"PILLARBOX_PROJECTOR_{field.name.upper()}": str(
            getattr(OutboxProjectorConfig(), field.name)
        )
        for field in fields(OutboxProjectorConfig)
    }

    assert OutboxProjectorConfig.from_env(environ) == OutboxProjectorConfig()


def test_a_variable_wins_over_the_file_and_an_argument_over_both(tmp_path: Path) -> None:
    file = settings_file(tmp_path, "[projector]\nbatch_size = 1\nlease = 5\nsleep_idle = 9")
    environ = {"PILLARBOX_PROJECTOR_BATCH_SIZE": "2", "PILLARBOX_PROJECTOR_LEASE": "6"}

    config = OutboxProjectorConfig.from_env(environ, file=file, batch_size=3)

    assert (config.batch_size, config.lease, config.sleep_idle) == (3, 6.0, 9)


def test_a_variable_may_name_the_file_and_an_argument_wins_over_it(tmp_path: Path) -> None:
    named = settings_file(tmp_path, "[projector]\nbatch_size = 1")
    other = tmp_path / "other.toml"
    other.write_text("[projector]\nbatch_size = 2", "utf-8")
    environ = {"PILLARBOX_SETTINGS": str(named)}

    assert OutboxProjectorConfig.from_env(environ).batch_size == 1
    assert OutboxProjectorConfig.from_env(environ, file=other).batch_size == 2


def test_an_empty_variable_says_nothing() -> None:
    environ = {"PILLARBOX_PROJECTOR_BATCH_SIZE": "", "PILLARBOX_SETTINGS": ""}

    assert OutboxProjectorConfig.from_env(environ) == OutboxProjectorConfig()


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("1", True), ("False", False)])
def test_a_variable_may_say_true_or_false(text: str, value: bool) -> None:
    assert OutboxProjectorConfig.from_env({"PILLARBOX_PROJECTOR_ORDERED": text}).ordered is value


@pytest.mark.parametrize(
    ("variable", "text", "remedy"),
    [
        ("PILLARBOX_PROJECTOR_BATCH_SIZE", "many", "whole number"),
        ("PILLARBOX_PROJECTOR_BATCH_SIZE", "1.5", "whole number"),
        ("PILLARBOX_PROJECTOR_LEASE", "15s", "number of seconds"),
        ("PILLARBOX_PROJECTOR_ORDERED", "perhaps", "true or false"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(variable: str, text: str, remedy: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        OutboxProjectorConfig.from_env({variable: text})

    assert refused.value.setting == variable
    assert repr(text) in str(refused.value)
    assert remedy in str(refused.value)


def test_a_setting_of_the_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    file = settings_file(tmp_path, "[projector]\nbatchsize = 1")

    with pytest.raises(InvalidConfig, match=r"projector.batchsize is no setting"):
        OutboxProjectorConfig.from_env(NOTHING, file=file)


@pytest.mark.parametrize("text", ["projector = 3", "[[projector]]\nlease = 5", "[projector"])
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    file = settings_file(tmp_path, text)

    with pytest.raises(InvalidConfig):
        OutboxProjectorConfig.from_env(NOTHING, file=file)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"gone.toml is missing"):
        OutboxProjectorConfig.from_env(NOTHING, file=tmp_path / "gone.toml")


def test_a_file_without_a_table_for_the_projector_says_nothing(tmp_path: Path) -> None:
    file = settings_file(tmp_path, "[elsewhere]\nbatch_size = 1")

    assert OutboxProjectorConfig.from_env(NOTHING, file=file) == OutboxProjectorConfig()


def test_what_may_be_in_hand_is_a_number_of_batches() -> None:
    assert OutboxProjectorConfig(batch_size=7, batches_in_hand=3).events_in_hand == 21
