"""The weaker mode, for any ASGI application and handlers that commit by themselves.

Before the application runs, a row says that the command is being executed: committed, with a lease
and a token. After it, the answer is recorded under that token, and then sent. A process that dies
in between leaves the row; when its lease has run out, a repetition executes the command again,
although the handler may have committed. So handlers must bear that, or use the strong mode.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox.errors import InvalidConfig
from pillarbox.idempotency.answer import Answer, problem, replayed, to_keep
from pillarbox.idempotency.buffer import AnswerBuffer
from pillarbox.idempotency.decision import (
    Busy,
    Claimed,
    Decision,
    Execute,
    Refuse,
    Replay,
    Sighting,
    decide,
)
from pillarbox.idempotency.errors import (
    IdempotencyError,
    IdempotencyKeyMissing,
    NotAuthorized,
    PrincipalMissing,
)
from pillarbox.idempotency.http import (
    SAFE_METHODS,
    ClientGone,
    HttpScope,
    Receive,
    Send,
    again,
    fingerprint_of,
    key_of,
    read_body,
)
from pillarbox.idempotency.observer import Observer, outcome_of
from pillarbox.idempotency.scope import Scope
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.store import Bid, CommandStore, Lease
from pillarbox.idempotency.stores import store_for
from pillarbox.tenancy import DEFAULT_TENANT, Tenancy

log = logging.getLogger(__name__)

T = TypeVar("T")
App = Callable[[HttpScope, Receive, Send], Awaitable[None]]
Resolver = Callable[[HttpScope], object | Awaitable[object]]


class IdempotencyMiddleware:
    """Have each command of an ASGI application executed once for its Idempotency-Key.

        app = IdempotencyMiddleware(app, sessions=session_factory,
                                    principal=caller_of, authorize=may_send)

    `principal` names the caller and `authorize` says whether he may send this command now; both
    are given the ASGI scope, on every request, before a recorded answer is. `operation` names the
    route's template; without it, each path is an operation of its own.
    """

    def __init__(
        self,
        app: App,
        *,
        sessions: async_sessionmaker[AsyncSession],
        principal: Resolver | None = None,
        authorize: Resolver | None = None,
        operation: Callable[[HttpScope], str] | None = None,
        settings: IdempotencySettings | None = None,
        tenancy: Tenancy | None = None,
        schema: str | None = None,
        observer: Observer | None = None,
    ) -> None:
        if principal is None or authorize is None:
            missing = "principal" if principal is None else "authorize"
            raise InvalidConfig(
                missing,
                "is not set",
                "say who calls and whether he may: a recorded answer must not reach anyone else",
            )
        self._app, self._sessions = app, sessions
        self._principal, self._authorize, self._operation = principal, authorize, operation
        self._settings = settings or IdempotencySettings()
        self._tenancy, self._observer = tenancy or Tenancy(), observer or Observer()
        dialect = sessions.kw["bind"].dialect.name
        self._store: CommandStore = store_for(dialect, self._settings, schema=schema)

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Serve one connection of the application."""
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        try:
            await self._serve(scope, receive, send)
        except IdempotencyError as error:
            self._observer.ended(outcome_of(error))
            await _send(problem(error, self._settings), send)
        except ClientGone:
            log.debug("client_gone")

    async def _serve(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        key = key_of(scope)
        if key is None:
            if self._settings.required:
                raise IdempotencyKeyMissing
            await self._app(scope, receive, send)
            return
        who = await self._admitted(scope)
        body = await read_body(scope, receive, self._settings.request_limit)
        bid = self._bid(scope, who, key, body)
        decision = await self._claim(bid)
        match decision:
            case Execute():
                await self._execute(scope, again(body, receive), send, bid)
            case Replay(answer):
                self._observer.ended("replayed")
                await _send(replayed(answer), send)
            case Refuse(error):
                raise error

    async def _admitted(self, scope: HttpScope) -> str:
        principal = await _resolved(self._principal(scope))
        if principal is None or not str(principal):
            raise PrincipalMissing
        if not await _resolved(self._authorize(scope)):
            raise NotAuthorized
        return str(principal)

    def _bid(self, scope: HttpScope, who: str, key: str, body: bytes) -> Bid:
        template = scope["path"] if self._operation is None else self._operation(scope)
        tenant_id = self._tenancy.resolve(DEFAULT_TENANT, "a command with Idempotency-Key")
        found = Scope.of(tenant_id, who, f"{scope['method']} {template}", key)
        return Bid(found, fingerprint_of(scope, body), Lease(uuid4(), self._settings.lease))

    async def _claim(self, bid: Bid) -> Decision:
        try:
            seen = await self._in_transaction(lambda held: self._claim_noted(held, bid))
        except DBAPIError as error:
            if not self._store.is_held_off(error):
                raise
            seen = Busy()
        finally:
            self._store.ended(bid)
        if isinstance(seen, Claimed) and self._tenancy.required:
            self._store.tenants.committed(bid.scope.tenant_id)
        return decide(seen, bid.fingerprint, self._settings)

    def _claim_noted(self, held: Connection, bid: Bid) -> Sighting:
        seen = self._store.claim(held, bid)
        if isinstance(seen, Claimed) and self._tenancy.required:
            self._store.tenants.note(held, bid.scope.tenant_id)
        return seen

    async def _execute(self, scope: HttpScope, receive: Receive, send: Send, bid: Bid) -> None:
        """Run the application; record its answer under our token, and then send it."""
        buffer = AnswerBuffer(send, self._settings.answer_limit)
        try:
            async with self._renewed(bid):
                await self._app(scope, receive, buffer.take)
        except Exception:
            await self._release(bid)
            raise
        status, headers, body = buffer.found()
        kept = to_keep(status, headers, body, self._settings)
        if kept is None:
            await self._release(bid)
        elif not await self._in_transaction(lambda held: self._store.record(held, bid, kept)):
            log.warning("command_lease_lost")  # another process has executed it meanwhile
        if kept is not None:
            self._observer.ended("executed")
        await buffer.flush()

    async def _release(self, bid: Bid) -> None:
        await self._in_transaction(lambda held: self._store.release(held, bid))
        self._observer.ended("undone")

    @asynccontextmanager
    async def _renewed(self, bid: Bid) -> AsyncIterator[None]:
        """Keep the lease while the application works."""
        renewer = asyncio.create_task(self._renew(bid), name="pillarbox-command-lease")
        try:
            yield
        finally:
            renewer.cancel()
            await asyncio.wait([renewer])

    async def _renew(self, bid: Bid) -> None:
        while True:
            await asyncio.sleep(self._settings.lease.total_seconds() / 3)
            try:
                held = await self._in_transaction(lambda found: self._store.renew(found, bid))
            except (DBAPIError, OSError):
                log.warning("command_lease_not_renewed", exc_info=True)
                continue  # there is time for another try before it runs out
            if not held:
                return

    async def _in_transaction(self, work: Callable[[Connection], T]) -> T:
        async with self._sessions() as session:
            found = await session.run_sync(lambda inner: work(inner.connection()))
            await session.commit()
            return found


async def _resolved(found: object) -> object:
    return await found if isinstance(found, Awaitable) else found


async def _send(answer: Answer, send: Send) -> None:
    body = answer.body or b""
    headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in answer.headers]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
