"""The servers of the tests on TLS: whatever a client does is no failure of theirs."""

import asyncio

import pytest

from pillarbox.servers.ports import LOOPBACK
from tests.bus.secure import Serve, listening


async def test_a_client_that_resets_its_connection_fails_no_test() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.readline()
        raise ConnectionResetError

    await greet(serve)


async def test_what_goes_wrong_in_serving_fails_the_test() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise ValueError(await reader.readline(), writer)

    with pytest.raises(ValueError, match="hello"):
        await greet(serve)


async def greet(serve: Serve) -> None:
    async with listening(serve) as port:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(b"hello\n")
        assert await reader.read() == b""
        writer.close()
