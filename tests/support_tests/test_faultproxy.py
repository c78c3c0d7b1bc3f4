"""The fault proxy forwards faithfully, and breaks exactly what and when it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from pillarbox.servers.ports import LOOPBACK
from tests.support.faultproxy import (
    CLIENT,
    SERVER,
    AfterBytes,
    AtOnce,
    Cut,
    Delay,
    Drop,
    FaultProxy,
    Freeze,
    Rule,
    Seen,
)

SOON = 5.0
A_MOMENT = 0.1


@dataclass(slots=True)
class Echo:
    """A server that sends back what it gets, and remembers it."""

    port: int = 0
    got: bytearray = field(default_factory=bytearray)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1024):
                self.got += chunk
                self.more.set()
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self.ended.set()
            writer.close()

    async def has(self, content: bytes) -> None:
        async with asyncio.timeout(SOON):
            while content not in self.got:
                self.more.clear()
                await self.more.wait()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    server = Echo()
    listener = await asyncio.start_server(server.serve, LOOPBACK, 0)
    server.port = listener.sockets[0].getsockname()[1]
    yield server
    listener.close()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(LOOPBACK, echo.port) as proxy:
        yield proxy


@dataclass(slots=True)
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def receive(self, count: int) -> bytes:
        async with asyncio.timeout(SOON):
            return await self.reader.readexactly(count)

    async def hears_nothing(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(A_MOMENT):
                await self.reader.read(1)

    async def hears_the_end(self) -> bytes:
        async with asyncio.timeout(SOON):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@asynccontextmanager
async def client_of(proxy: FaultProxy) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    await proxy.connected(1)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def test_without_a_plan_everything_passes_both_ways(proxy: FaultProxy) -> None:
    async with client_of(proxy) as client:
        content = bytes(range(256)) * 1000
        await client.send(content)

        assert await client.receive(len(content)) == content


async def test_the_end_of_the_stream_is_passed_on(proxy: FaultProxy, echo: Echo) -> None:
    async with client_of(proxy) as client:
        await client.send(b"bye")
        client.writer.write_eof()

        assert await client.hears_the_end() == b"bye"
        await asyncio.wait_for(echo.ended.wait(), SOON)
    await proxy.connected(0)


@pytest.mark.parametrize("reset", [True, False])
async def test_a_cut_at_once_ends_both_sides(proxy: FaultProxy, echo: Echo, reset: bool) -> None:
    async with client_of(proxy) as client:
        await client.send(b"hello")
        await client.receive(5)
        proxy.now(Cut(reset=reset))

        assert await client.hears_the_end() == b""
        await asyncio.wait_for(echo.ended.wait(), SOON)


async def test_a_reset_is_seen_as_a_reset(proxy: FaultProxy) -> None:
    async with client_of(proxy) as client:
        await client.send(b"hello")
        await client.receive(5)
        proxy.now(Cut(reset=True))

        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(client.reader.read(), SOON)


async def test_a_cut_at_a_byte_lets_exactly_the_bytes_before_pass(
    proxy: FaultProxy, echo: Echo
) -> None:
    proxy.plan(Rule(SERVER, AfterBytes(7), Cut(reset=False)))

    async with client_of(proxy) as client:
        await client.send(b"0123")
        await client.receive(4)
        await client.send(b"456789")
        await proxy.fired()
        await asyncio.wait_for(echo.ended.wait(), SOON)

    assert bytes(echo.got) == b"0123456"


async def test_a_cut_before_a_message_keeps_it_from_the_server(
    proxy: FaultProxy, echo: Echo
) -> None:
    proxy.plan(Rule(SERVER, Seen(b"COMMIT"), Cut()))

    async with client_of(proxy) as client:
        await client.send(b"INSERT;")
        await client.receive(7)
        await client.send(b"COMMIT;")
        await proxy.fired()

        assert await client.hears_the_end() == b""
    assert bytes(echo.got) == b"INSERT;"


async def test_a_cut_after_a_message_lets_it_reach_the_server_and_loses_the_reply(
    proxy: FaultProxy, echo: Echo
) -> None:
    proxy.plan(Rule(SERVER, Seen(b"COMMIT"), Drop(CLIENT), after=True))

    async with client_of(proxy) as client:
        await client.send(b"COMMIT;")
        await echo.has(b"COMMIT;")
        proxy.now(Cut())

        assert await client.hears_the_end() == b""


async def test_a_cut_at_the_reply_lets_the_request_pass(proxy: FaultProxy, echo: Echo) -> None:
    proxy.plan(Rule(CLIENT, Seen(b"COMMIT"), Cut()))

    async with client_of(proxy) as client:
        await client.send(b"COMMIT;")

        assert await client.hears_the_end() == b""
    assert bytes(echo.got) == b"COMMIT;"


async def test_a_pattern_in_pieces_is_seen(proxy: FaultProxy) -> None:
    proxy.plan(Rule(SERVER, Seen(b"COMMIT"), Cut()))

    async with client_of(proxy) as client:
        await client.send(b"xxCOM")
        await client.receive(5)
        await client.send(b"MIT")

        await proxy.fired()
        assert await client.hears_the_end() == b""


async def test_a_frozen_connection_stays_open_and_goes_on_when_thawed(
    proxy: FaultProxy, echo: Echo
) -> None:
    async with client_of(proxy) as client:
        proxy.now(Freeze())
        await client.send(b"hello")
        await client.hears_nothing()
        assert not echo.got
        assert proxy.connections == 1
        proxy.thaw()

        assert await client.receive(5) == b"hello"


async def test_a_dropped_direction_loses_its_bytes_while_the_other_flows(
    proxy: FaultProxy, echo: Echo
) -> None:
    proxy.plan(Rule(SERVER, AtOnce(), Drop(CLIENT), after=True))

    async with client_of(proxy) as client:
        await client.send(b"lost answer")
        await echo.has(b"lost answer")
        await client.hears_nothing()
        proxy.thaw()
        await client.send(b"heard")

        assert await client.receive(5) == b"heard"


async def test_a_delay_holds_bytes_back(proxy: FaultProxy) -> None:
    loop = asyncio.get_running_loop()
    async with client_of(proxy) as client:
        proxy.now(Delay(timedelta(milliseconds=200)), toward=CLIENT)
        began = loop.time()
        await client.send(b"slow")
        assert await client.receive(4) == b"slow"

        assert loop.time() - began >= 0.2


async def test_a_fault_happens_once(proxy: FaultProxy) -> None:
    proxy.plan(Rule(SERVER, Seen(b"x"), Cut()))
    async with client_of(proxy) as client:
        await client.send(b"x")
        await client.hears_the_end()
    await proxy.connected(0)

    async with client_of(proxy) as client:
        await client.send(b"x")

        assert await client.receive(1) == b"x"


async def test_a_wait_for_a_fault_that_never_comes_ends(echo: Echo) -> None:
    async with FaultProxy(LOOPBACK, echo.port, limit=timedelta(milliseconds=50)) as proxy:
        with pytest.raises(TimeoutError):
            await proxy.fired()


async def test_a_server_that_refuses_ends_the_client(echo: Echo) -> None:
    async with FaultProxy(LOOPBACK, 1) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)

        assert await asyncio.wait_for(reader.read(), SOON) == b""
        writer.close()


async def test_the_end_of_the_block_ends_frozen_connections(echo: Echo) -> None:
    async with FaultProxy(LOOPBACK, echo.port) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        await proxy.connected(1)
        proxy.now(Freeze())
        writer.write(b"hello")

    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), SOON)
    writer.close()
