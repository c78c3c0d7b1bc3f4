from collections.abc import Iterator

import pytest

from pillarbox.servers import Nats, Pulsar, ServerFailed

_REGISTERED = (
    "INFO ResourceLockImpl Lock on resource /ledgers/available/127.0.0.1:1 was invalidated\n"
)


class Quarrelling(Nats):
    """A server that some starts of come to nothing."""

    def __init__(self, causes: Iterator[str | None]) -> None:
        super().__init__()
        self._causes = causes

    def _probe(self) -> str | None:
        return None if self._lost_cause() else super()._probe()

    def _lost_cause(self) -> str | None:
        return next(self._causes, None)


def test_a_start_that_can_come_to_nothing_is_made_anew() -> None:
    with Quarrelling(iter(())) as server:
        first = server.pid
        # Asked twice a start: as it answers, and as it does not.
        server._causes = iter(["quarrels", "quarrels"] * 2)
        server.kill()

        server.restart()

        assert server.running
        assert server.pid != first
        assert next(server._causes, None) is None


def test_a_server_that_never_gets_on_is_given_up_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Quarrelling, "restart_seconds", 0.0)
    with Quarrelling(iter(())) as server:
        server._causes = iter(lambda: "quarrels with itself", None)
        server.kill()

        with pytest.raises(ServerFailed, match="quarrels with itself"):
            server.restart()

        assert not server.running


@pytest.mark.parametrize(("lines", "lost"), [(1, False), (50, True)])
def test_a_bookie_that_registers_over_and_over_is_a_lost_cause(
    lines: int, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Pulsar()
    monkeypatch.setattr(server, "_output", lambda: _REGISTERED * lines)

    cause = server._lost_cause()

    assert (cause is not None) is lost
