"""Read a broker's whole log from its beginning, with the broker's own client and nothing of ours."""

from tests.faults.readers.message import Message

__all__ = ["Message"]
