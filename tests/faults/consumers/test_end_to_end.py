"""From an order to its payment, over every broker, with everything killed in turn."""

from collections.abc import Callable

import pytest

from tests.faults.consumers.conftest import Town
from tests.faults.consumers.shop import PAYMENTS, Shop
from tests.faults.rig import side_by_side

MEMBERS = 2

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def test_every_order_is_paid_once_whoever_is_killed(town: Callable[[str], Town]) -> None:
    place = town("shop")
    shops = place.shops(PAYMENTS, event="OrderPlaced")
    for shop in shops:
        shop.start_writer()
        shop.start_projector()
        for _ in range(MEMBERS):
            shop.payments.start_member()
    go_on(shops)

    for shop in shops:
        shop.kill(shop.writers[-1])
        shop.start_writer()
    go_on(shops)
    for shop in shops:
        shop.kill(shop.projectors[-1])
        shop.start_projector()
    go_on(shops)
    for shop in shops:
        for member in shop.payments.running:
            shop.kill(member)
            shop.payments.start_member()
    go_on(shops)
    for shop in shops:
        shop.payments.ground.server.kill()
    side_by_side(lambda shop: shop.payments.ground.server.restart(), shops)
    go_on(shops)
    place.postgres.kill()
    place.postgres.restart()
    go_on(shops)

    for shop in shops:
        shop.come_to_rest()
        shop.stop()
    for shop in shops:
        report = shop.report()
        shop.payments.tell(report)
        assert not report.violations, report
        assert shop.lost() == set()


def go_on(shops: list[Shop]) -> None:
    """Wait until payments are taken again, everywhere."""
    for shop in shops:
        shop.payments.flows_on(more=10)
