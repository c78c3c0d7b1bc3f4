"""The service, as `pillarbox projector run --app` finds it."""

from pillarbox import Pillarbox

box = Pillarbox.from_env(service="orders")
