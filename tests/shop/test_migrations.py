"""The shop's own migrations make the tables that its classes say."""

from collections.abc import Mapping

import psycopg
import pytest
from alembic import command
from sqlalchemy import MetaData, create_engine
from sqlalchemy.pool import NullPool

from examples.demo.databases import SERVICES, Database
from examples.shop.common.migrate import alembic_of, migrate
from examples.shop.inventory_service.app.database import Base as Inventory
from examples.shop.notification_service.app.database import Base as Notifications
from examples.shop.order_service.app.view import Orders
from examples.shop.payment_service.app.database import Base as Payments
from pillarbox.database import sync_url
from pillarbox.schema import SchemaOptions, check

TABLES: Mapping[str, MetaData] = {
    "orders": Orders.table.metadata,
    "inventory": Inventory.metadata,
    "payments": Payments.metadata,
    "notifications": Notifications.metadata,
}


@pytest.mark.parametrize("name", SERVICES)
def test_alembic_finds_nothing_left_to_do(
    shop_databases: Mapping[str, Database], name: str
) -> None:
    engine = create_engine(sync_url(shop_databases[name].owner), poolclass=NullPool)
    with engine.begin() as connection:
        config = alembic_of(SERVICES[name], connection)
        config.attributes["tables"] = TABLES[name]

        command.check(config)
        assert not check(connection, SchemaOptions(tenancy=True))


def test_a_second_migration_changes_nothing(shop_databases: Mapping[str, Database]) -> None:
    migrate(shop_databases["orders"].owner, "order")

    with psycopg.connect(shop_databases["orders"].owner) as connection:
        versions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert versions == [("0001",)]
