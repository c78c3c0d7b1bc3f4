"""The payment service's Pillarbox."""

from examples.shop.common.box import open_box

box = open_box("payments")
