"""What a box is told by arguments and variables, and what it refuses."""

import pytest

from pillarbox import (
    Pillarbox,
)
from pillarbox.errors import InvalidConfig

URL = "postgresql://app@db.example/orders"


def test_from_env_reads_the_three_variables() -> None:
    environ = {
        "PILLARBOX_DATABASE_URL": URL,
        "PILLARBOX_BUS_URL": "nats://bus:4222",
        "PILLARBOX_SERVICE": "orders",
    }

    box = Pillarbox.from_env(environ=environ)

    assert box.engine.url.drivername == "postgresql+psycopg"
    assert box.engine.url.host == "db.example"
    assert box.bus.capabilities.rules.name == "nats"
    assert box.settings.rules.name == "nats"
    assert box.settings.service == "orders"


def test_from_env_takes_the_process_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILLARBOX_DATABASE_URL", URL)
    monkeypatch.setenv("PILLARBOX_SERVICE", "orders")

    assert Pillarbox.from_env().settings.service == "orders"


def test_an_argument_wins_over_its_variable() -> None:
    environ = {
        "PILLARBOX_DATABASE_URL": URL,
        "PILLARBOX_BUS_URL": "nats://bus:4222",
        "PILLARBOX_SERVICE": "from-the-environment",
        "PILLARBOX_SCHEMA": "from_the_environment",
    }

    box = Pillarbox(URL, "kafka://bus:9092", service="orders", schema="shop", environ=environ)

    assert box.settings.service == "orders"
    assert box.settings.rules.name == "kafka"
    assert box.settings.schema == "shop"


def test_without_a_service_the_service_is_default() -> None:
    assert Pillarbox(URL, environ={}).settings.service == "default"


def test_a_service_whose_uri_no_inbox_could_keep_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="service has 264 characters as a URI > 255"):
        Pillarbox(URL, service="🦊" * 22, environ={})


@pytest.mark.parametrize("environ", [{}, {"PILLARBOX_DATABASE_URL": ""}])
def test_a_missing_database_variable_is_named_with_what_to_type(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match=r"PILLARBOX_DATABASE_URL is not set; .*pillarbox dev"):
        Pillarbox.from_env(environ=environ)


def test_an_unknown_bus_is_refused_without_repeating_its_password() -> None:
    with pytest.raises(InvalidConfig, match="names no bus") as refused:
        Pillarbox(URL, "zeromq://user:secret@bus", environ={})

    assert "secret" not in str(refused.value)


def test_an_unknown_tenancy_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="PILLARBOX_TENANCY is 'on'"):
        Pillarbox(URL, environ={"PILLARBOX_TENANCY": "on"})


def test_its_text_hides_the_password() -> None:
    box = Pillarbox("postgresql://app:secret@db.example/orders", service="orders", environ={})

    assert repr(box) == "<Pillarbox orders on postgresql://app:***@db.example/orders>"


def test_a_projector_needs_a_bus() -> None:
    with pytest.raises(InvalidConfig, match="set PILLARBOX_BUS_URL"):
        Pillarbox(URL, environ={}).projector()
