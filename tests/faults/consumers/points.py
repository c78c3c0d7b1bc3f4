"""The named points at which a consumer kills or freezes itself, around handler, commit and ack."""

from typing import Final

# How long after its announcement a step is surely under way, and not yet over.
POINTS: Final = {
    "received": 0.0,  # messages are in hand, nothing has begun
    "beginning": 0.001,  # the transaction is on its way to its claims
    "in-handler": 0.0,  # an effect is written and not committed
    "handled": 0.0,
    "mid-commit": 0.0005,
    "committed": 0.0,  # the broker knows nothing yet
    "acknowledged": 0.0,  # told to the client, perhaps not to the broker
    "after-ack": 0.05,
    "set-aside": 0.0,  # a message is in the table and not acknowledged
    "mid-return": 0.0,  # a message of the table is in its handler
}
# After a commit, with effects before it: others are to go on with accounts that were booked for.
FREEZING: Final = {"frozen": 0.0}
