"""The web process of a service, before it serves anything."""

import pytest

from examples.shop.common.web import address_of, web_service
from pillarbox import Pillarbox
from pillarbox.errors import InvalidConfig


def test_a_service_that_could_not_see_what_waits_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Pillarbox("postgresql://nobody@127.0.0.1:1/none", service="orders", environ={})
    monkeypatch.delenv("OPERATOR_DATABASE_URL", raising=False)

    with pytest.raises(InvalidConfig, match="OPERATOR_DATABASE_URL is not set"):
        web_service(box)


def test_a_service_is_on_port_8080_of_this_machine_unless_told_otherwise() -> None:
    assert address_of({}) == ("127.0.0.1", 8080)
    assert address_of({"HOST": "10.0.0.1", "PORT": "9000"}) == ("10.0.0.1", 9000)
