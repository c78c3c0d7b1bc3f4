"""Keys of NATS, written and signed as the package `nkeys` does, which is not among ours."""

import base64
import struct
import sys
from types import ModuleType

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_SEED = 18 << 3  # shown as an S
_USER = 20 << 3  # shown as a U
_POLYNOMIAL = 0x1021


class KeyPair:
    """The key of a user; it signs what a server asks it to."""

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)

    @property
    def public_key(self) -> bytes:
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return _written(bytes([_USER]) + public)

    def sign(self, asked: bytes) -> bytes:
        return self._key.sign(asked)

    def wipe(self) -> None:
        """Forget the key; a test need not."""


def new_seed(secret: bytes) -> str:
    """Write 32 bytes as the seed of a user."""
    head = bytes([_SEED | (_USER >> 5), (_USER & 31) << 3])
    return _written(head + secret).decode()


def from_seed(seed: bytes) -> KeyPair:
    """Read a seed."""
    padded = bytes(seed) + b"=" * (-len(seed) % 8)
    return KeyPair(base64.b32decode(padded)[2:-2])


@pytest.fixture
def nkeys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nats-py find the package."""
    module = ModuleType("nkeys")
    vars(module).update(from_seed=from_seed, KeyPair=KeyPair)
    monkeypatch.setitem(sys.modules, "nkeys", module)


def _written(content: bytes) -> bytes:
    return base64.b32encode(content + struct.pack("<H", _checksum(content))).rstrip(b"=")


def _checksum(content: bytes) -> int:
    """Return the CRC-16 of XMODEM."""
    value = 0
    for byte in content:
        value ^= byte << 8
        for _ in range(8):
            value = (value << 1 ^ _POLYNOMIAL if value & 0x8000 else value << 1) & 0xFFFF
    return value
