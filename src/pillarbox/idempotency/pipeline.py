"""Statements of psycopg that share a round trip with BEGIN or COMMIT.

libpq's pipeline is driven directly: psycopg's own class for it costs the client more than the round
trip that it saves. psycopg's knowledge of the connection stays true: its lock is held, and prepared
statements are looked up and noted where its cursors do it.
"""

from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg._preparing import Prepare
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from sqlalchemy import Connection
from sqlalchemy.util import await_only

from pillarbox.idempotency.statement import Found

_IS_SUPPORTED: Final = psycopg.Pipeline.is_supported()
_OK: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC)


def sharing(connection: Connection, *, commits: bool) -> AsyncConnection[Any] | None:
    """Return the driver's connection if BEGIN is still to be sent, or COMMIT may be, with more."""
    driver: Any = connection.connection.driver_connection
    pgconn = driver.pgconn
    if driver.autocommit or not _IS_SUPPORTED or pgconn.pipeline_status != PipelineStatus.OFF:
        return None
    status = pgconn.transaction_status
    ends = commits and status == TransactionStatus.INTRANS
    if status != TransactionStatus.IDLE and (not ends or connection.in_nested_transaction()):
        return None
    found: AsyncConnection[Any] = driver
    return found


def run_shared(
    driver: AsyncConnection[Any], statement: str, values: Mapping[str, Any], *, commits: bool
) -> Found:
    """Run a statement, after BEGIN if none was sent, and before COMMIT if that is wanted.

    If the statement fails, COMMIT is not done and the transaction is aborted. If COMMIT fails,
    there is no transaction any more; if the connection is lost, its outcome is unknown. Whoever is
    cancelled meanwhile must not use the connection again.
    """
    return await_only(_run(_Exchange(driver, statement, values), commits))


def roll_back(driver: AsyncConnection[Any]) -> None:
    """Roll back a transaction that has defined nothing, so that what is prepared stays so.

    psycopg's own rollback deallocates all prepared statements, since they may depend on what is
    undone. It follows all the same, finds nothing to do, and sees to a connection that is lost.
    """
    if driver.pgconn.transaction_status == TransactionStatus.INTRANS:
        with suppress(psycopg.Error):
            await_only(_roll_back(driver))


async def _roll_back(driver: AsyncConnection[Any]) -> None:
    async with driver.lock:
        await driver.wait(driver._exec_command(b"ROLLBACK"))  # noqa: SLF001 - as its own rollback does


async def _run(exchange: "_Exchange", commits: bool) -> Found:
    driver = exchange.driver
    async with driver.lock:
        try:
            return await driver.wait(exchange.perform(commits))
        finally:
            if driver.pgconn.pipeline_status != PipelineStatus.OFF:
                driver.pgconn.finish()  # answers may be under way that nobody waits for


class _Exchange:
    """One statement, on its way to the server and back."""

    def __init__(
        self, driver: AsyncConnection[Any], statement: str, values: Mapping[str, Any]
    ) -> None:
        self.driver, self._pgconn = driver, driver.pgconn
        self._prepared = driver._prepared  # noqa: SLF001 - a name of our own would be lost: psycopg deallocates all
        self._transformer = Transformer(driver)
        self._query = PostgresQuery(self._transformer)
        self._query.convert(statement, values)

    def perform(self, commits: bool) -> Generator[Any, Any, Found]:
        """Send all that goes together, and read all answers; as psycopg's generators do."""
        way, name = self._prepared.get(self._query)
        begins = self._pgconn.transaction_status == TransactionStatus.IDLE
        self._pgconn.enter_pipeline_mode()
        if begins:
            begin = self.driver._get_tx_start_command()  # noqa: SLF001 - with its isolation level
            self._pgconn.send_query_params(begin, None)
        self._send(way, name)
        if commits:
            self._pgconn.send_query_params(b"COMMIT", None)
        self._pgconn.pipeline_sync()
        yield from send(self._pgconn)
        before = begins + (way is Prepare.SHOULD)
        results = yield from self._answers(before + 1 + commits + 1)
        self._pgconn.exit_pipeline_mode()
        self._refuse_failures(results)
        key = self._prepared.maybe_add_to_cache(self._query, way, name)
        if key is not None:
            self._prepared.validate(key, way, name, [results[before]])
        return self._found(results[before])

    def _send(self, way: Prepare, name: bytes) -> None:
        query = self._query
        if way is Prepare.NO:
            self._pgconn.send_query_params(
                query.query, query.params, param_types=query.types, param_formats=query.formats
            )
            return
        if way is Prepare.SHOULD:
            self._pgconn.send_prepare(name, query.query, param_types=query.types)
        self._pgconn.send_query_prepared(name, query.params, param_formats=query.formats)

    def _answers(self, count: int) -> Generator[Any, Any, list[PGresult]]:
        results: list[PGresult] = []
        try:
            while len(results) < count:
                found = yield from fetch_many(self._pgconn)
                if not found:  # libpq has given up the connection over an answer it could not read
                    raise psycopg.OperationalError("the connection is lost")
                results += found
        except psycopg.Error:
            self._refuse_failures(results)  # a server that goes down says why, and is gone then
            raise
        return results

    def _refuse_failures(self, results: list[PGresult]) -> None:
        for result in results:
            if result.status not in _OK:
                raise error_from_result(result, encoding=self._transformer.encoding)

    def _found(self, result: PGresult) -> Found:
        row = None
        if result.ntuples:
            self._transformer.set_pgresult(result)
            row = self._transformer.load_row(0, tuple)
        return Found(result.command_tuples or 0, row)
