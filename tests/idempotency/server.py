"""A small HTTP server in a process of its own, which can kill itself at a named point.

    python -m tests.idempotency.server DATABASE_URL [POINT] [weak]

It serves the shop, one request for each connection, and says its port in the first line. The point
is met by the first request that reaches it. `weak` puts the middleware before routes without keys.
The line `entered` says that a slow command is being executed; SIGUSR1 lets it go on.
"""

import asyncio
import os
import signal
import sys
from typing import Any

import h11
from sqlalchemy import Connection

from pillarbox.idempotency.middleware import IdempotencyMiddleware
from pillarbox.idempotency.store import CommandStore
from tests.idempotency.shop import Shop, make_shop

POINTS = ("rendered", "recorded", "before-commit", "after-commit", "before-first-byte")
WEAK_POINTS = ("before-claim", "after-claim", "before-record", "after-record", "before-first-byte")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str | None) -> None:
    """Have the process kill itself when it comes to a point."""
    store: Any = CommandStore
    record = store.record

    def recorded(*args: Any, **options: Any) -> bool:
        if point == "rendered":
            die()  # claim and effects are written and the answer is ready
        done: bool = record(*args, **options)
        if point == "recorded":
            die()
        return done

    commit = Connection.commit

    def committed(connection: Connection) -> None:
        if point == "before-commit":
            die()
        commit(connection)
        if point == "after-commit":
            die()

    store.record = recorded
    owner: Any = Connection
    owner.commit = committed


def arm_weak(point: str | None) -> None:
    """Have the process kill itself around one of the two transactions of the middleware."""
    middleware: Any = IdempotencyMiddleware
    in_transaction = middleware._in_transaction
    names = iter(("claim", "record"))

    async def counted(*args: Any) -> Any:
        name = next(names)
        if point == f"before-{name}":
            die()
        found = await in_transaction(*args)
        if point == f"after-{name}":
            die()
        return found

    middleware._in_transaction = counted


def guarded(shop: Shop) -> IdempotencyMiddleware:
    """Put the middleware before the shop."""
    return IdempotencyMiddleware(
        shop.app,
        sessions=shop.box.session_factory,
        principal=lambda scope: dict(scope["headers"]).get(b"x-user", b"").decode(),
        authorize=lambda _: True,
    )


class Exchange:
    """One request of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.protocol = h11.Connection(h11.SERVER)

    async def event(self) -> Any:
        while (found := self.protocol.next_event()) is h11.NEED_DATA:
            self.protocol.receive_data(await self.reader.read(65536))
        return found

    async def receive(self) -> dict[str, Any]:
        try:
            found = await self.event()
        except h11.RemoteProtocolError:  # the end of the stream in the middle of a body
            return {"type": "http.disconnect"}
        match found:
            case h11.Data(data=data):
                return {"type": "http.request", "body": bytes(data), "more_body": True}
            case h11.EndOfMessage():
                return {"type": "http.request", "body": b"", "more_body": False}
            case _:
                return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            if "before-first-byte" in sys.argv[2:]:
                die()
            headers = [*message["headers"], (b"connection", b"close")]
            self._write(h11.Response(status_code=message["status"], headers=headers))
        else:
            self._write(h11.Data(data=message.get("body", b"")))
            if not message.get("more_body"):
                self._write(h11.EndOfMessage())
        await self.writer.drain()

    def _write(self, found: Any) -> None:
        self.writer.write(self.protocol.send(found) or b"")


async def main(url: str, point: str | None, *, weak: bool) -> None:
    shop = make_shop(url)
    app: Any = guarded(shop) if weak else shop.app
    (arm_weak if weak else arm)(point)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = Exchange(reader, writer)
        request = await exchange.event()
        path, _, query = request.target.partition(b"?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": request.method.decode(), "path": path.decode(), "raw_path": path,
            "query_string": query, "headers": list(request.headers), "root_path": "",
        }  # fmt: skip
        await app(scope, exchange.receive, exchange.send)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the parent reads it
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, shop.proceed.set)
    await shop.entered.wait()
    print("entered", flush=True)  # noqa: T201 - the parent reads it
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], next(iter(sys.argv[2:]), None), weak="weak" in sys.argv))
