"""The order service's Pillarbox."""

from examples.shop.common.box import open_box
from examples.shop.order_service.app.domain import Order
from examples.shop.order_service.app.repository import OrderRepository

box = open_box("orders")
box.repository(Order, OrderRepository)
