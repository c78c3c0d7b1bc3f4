"""What becomes of a command, and what is kept of an answer: decisions over values."""

from datetime import timedelta

import orjson
import pytest

from pillarbox.errors import InvalidConfig
from pillarbox.idempotency.answer import Answer, problem, replayed, to_keep
from pillarbox.idempotency.decision import (
    Busy,
    Claimed,
    Decision,
    Done,
    Execute,
    OverQuota,
    Refuse,
    Replay,
    Running,
    Sighting,
    decide,
)
from pillarbox.idempotency.errors import CommandInProgress, IdempotencyError
from pillarbox.idempotency.scope import Scope, fingerprint, fitted
from pillarbox.idempotency.settings import IdempotencySettings

SETTINGS = IdempotencySettings()
ANSWER = Answer(201, (("location", "/orders/1"),), b"{}")


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (Busy(), 409),
        (Running("mine"), 409),
        (Running("other"), 422),
        (Done("other", ANSWER), 422),
        (Done("mine", Answer(201, (), None)), 409),
        (OverQuota(), 429),
    ],
)
def test_a_command_that_may_not_run_is_refused(seen: Sighting, status: int) -> None:
    decision = decide(seen, "mine", SETTINGS)

    assert isinstance(decision, Refuse)
    assert decision.error.status == status


@pytest.mark.parametrize(
    ("seen", "decision"),
    [(Claimed(), Execute()), (Done("mine", ANSWER), Replay(ANSWER))],
)
def test_a_new_command_runs_and_a_repeated_one_is_answered(
    seen: Sighting, decision: Decision
) -> None:
    assert decide(seen, "mine", SETTINGS) == decision


def test_each_part_of_a_scope_makes_another_one() -> None:
    parts = ("default", "ada", "POST /orders", "k1")
    others = [(*parts[:n], parts[n] + "x", *parts[n + 1 :]) for n in range(4)]

    scopes = {Scope.of(*some) for some in (parts, *others)}

    assert len(scopes) == len({scope.lock for scope in scopes}) == 5


def test_the_key_itself_is_not_kept() -> None:
    assert "planted-key" not in repr(Scope.of("default", "ada", "POST /", "planted-key"))


def test_the_parts_of_a_scope_cannot_be_cut_in_another_way() -> None:
    assert Scope.of("a", "bc", "d", "k").lock != Scope.of("ab", "c", "d", "k").lock
    assert fingerprint(b"/a", b"b", b"") != fingerprint(b"/a", b"", b"b")


@pytest.mark.parametrize("name", ["x" * 256, "sha256:x", "a\0b", "\ud800" * 300])
def test_a_name_that_does_not_fit_is_hashed_under_a_mark(name: str) -> None:
    assert fitted(name).startswith("sha256:")
    assert len(fitted(name)) == 71


def test_a_name_that_fits_stays() -> None:
    assert fitted("ada") == "ada"


def test_cookies_and_credentials_are_not_kept() -> None:
    headers = [
        (b"Set-Cookie", b"secret"), (b"authorization", b"secret"), (b"WWW-Authenticate", b"secret"),
        (b"date", b"today"), (b"content-length", b"2"), (b"Location", b"/orders/1"),
        (b"x-two", b"a"), (b"x-two", b"b"),
    ]  # fmt: skip

    kept = to_keep(201, headers, b"{}", SETTINGS)

    assert kept == Answer(201, (("location", "/orders/1"), ("x-two", "a"), ("x-two", "b")), b"{}")


def test_server_errors_are_kept_only_on_demand() -> None:
    assert to_keep(500, [], b"", SETTINGS) is None
    assert to_keep(503, [], b"", IdempotencySettings(keep_server_errors=True)) is not None
    assert to_keep(499, [], b"", SETTINGS) is not None


@pytest.mark.parametrize("body", [None, b"x" * 11])
def test_of_a_stream_and_of_a_large_answer_the_status_is_kept(body: bytes | None) -> None:
    assert to_keep(201, [], body, IdempotencySettings(answer_limit=10)) == Answer(201, (), None)


def test_an_answer_at_the_limit_is_kept() -> None:
    assert to_keep(201, [], b"x" * 10, IdempotencySettings(answer_limit=10)) == Answer(
        201, (), b"x" * 10
    )


def test_a_repetition_is_marked_and_not_cached() -> None:
    assert replayed(ANSWER).headers == (
        *ANSWER.headers, ("cache-control", "no-store"), ("idempotency-replayed", "true"),
    )  # fmt: skip


def test_a_problem_links_to_its_page() -> None:
    settings = IdempotencySettings(docs_url="https://docs.example/pillarbox/")

    answer = problem(CommandInProgress(7), settings)

    headers = dict(answer.headers)
    found = orjson.loads(answer.body or b"")
    page = "https://docs.example/pillarbox/errors/command-in-progress.html"
    assert (found["type"], found["status"], answer.status) == (page, 409, 409)
    assert headers["content-type"] == "application/problem+json"
    assert headers["retry-after"] == "7"
    assert headers["link"] == f'<{page}>; rel="help"'


def test_a_problem_without_published_docs_has_a_name_of_its_own() -> None:
    found = orjson.loads(problem(CommandInProgress(1), SETTINGS).body or b"")

    assert found["type"] == "urn:pillarbox:error:command-in-progress"


def test_every_problem_has_a_title_of_its_own() -> None:
    kinds = IdempotencyError.__subclasses__()

    assert len({kind.title for kind in kinds}) == len(kinds)


@pytest.mark.parametrize(
    "wrong", [{"ttl": timedelta(0)}, {"quota": 0}, {"answer_limit": 0}, {"lease": timedelta(0)}]
)
def test_a_setting_that_cannot_work_is_refused(wrong: dict[str, timedelta | int]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(wrong))):
        IdempotencySettings(**wrong)  # type: ignore[arg-type] # one of several fields
