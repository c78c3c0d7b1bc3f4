"""The naive way: one write to the database and one to the broker, in either order."""

from nats.js import JetStreamContext
from sqlalchemy import CheckConstraint, String
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SUBJECT = "naive.order"


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "naive_orders"
    __table_args__ = (CheckConstraint("total > 0"),)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[int]


async def commit_then_publish(
    session: AsyncSession, broker: JetStreamContext, order: Order
) -> None:
    session.add(order)
    await session.commit()
    await broker.publish(SUBJECT, order.id.encode())


async def publish_then_commit(
    session: AsyncSession, broker: JetStreamContext, order: Order
) -> None:
    session.add(order)
    await broker.publish(SUBJECT, order.id.encode())
    await session.commit()
