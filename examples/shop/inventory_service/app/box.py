"""The inventory service's Pillarbox."""

from examples.shop.common.box import open_box

box = open_box("inventory")
