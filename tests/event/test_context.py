import asyncio

import pytest

from pillarbox import correlation, tenant, trace
from pillarbox.errors import InvalidHeader, InvalidKey, TenantMismatch
from pillarbox.event.context import current_headers, current_tenant

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_outside_every_block_an_event_inherits_nothing() -> None:
    assert current_headers() == {}
    assert current_tenant() is None


def test_a_correlation_and_its_cause_are_inherited_inside_the_block_alone() -> None:
    with correlation("request-7", causation_id="command-3"):
        assert current_headers() == {"correlationid": "request-7", "causationid": "command-3"}

    assert current_headers() == {}


def test_an_inner_correlation_does_not_keep_the_cause_of_the_outer_one() -> None:
    with correlation("outer", causation_id="cause"), correlation("inner"):
        assert current_headers() == {"correlationid": "inner"}


def test_a_trace_stands_beside_a_correlation() -> None:
    with correlation("request-7"), trace(TRACEPARENT, "vendor=1"):
        assert current_headers() == {
            "correlationid": "request-7",
            "traceparent": TRACEPARENT,
            "tracestate": "vendor=1",
        }


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "no trace",
        TRACEPARENT.upper(),
        TRACEPARENT.replace("00-", "ff-", 1),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        TRACEPARENT + "\n",
    ],
)
def test_what_is_no_w3c_trace_context_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidHeader, match="traceparent is not a W3C trace context"):
        trace(wrong).__enter__()


@pytest.mark.parametrize("wrong", ["", " spaced ", "line\nbreak", "x" * 256])
def test_a_correlation_id_that_cannot_travel_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidKey, match="correlation_id"):
        correlation(wrong).__enter__()


def test_a_tenant_holds_inside_its_block_alone() -> None:
    with tenant("acme"):
        assert current_tenant() == "acme"

    assert current_tenant() is None


def test_a_block_may_repeat_its_tenant_but_not_change_it() -> None:
    with tenant("acme"), tenant("acme"):
        assert current_tenant() == "acme"

    with tenant("acme"), pytest.raises(TenantMismatch, match=r"'globex'.*'acme'"):
        tenant("globex").__enter__()


def test_an_error_inside_the_block_ends_it() -> None:
    with pytest.raises(RuntimeError), tenant("acme"), correlation("request-7"):
        raise RuntimeError

    assert current_tenant() is None
    assert current_headers() == {}


async def test_tasks_do_not_see_the_blocks_of_one_another() -> None:
    both_are_inside = asyncio.Barrier(2)

    async def work(tenant_id: str) -> tuple[str | None, str | None]:
        with tenant(tenant_id), correlation(f"request-of-{tenant_id}"):
            await both_are_inside.wait()
            return current_tenant(), current_headers().get("correlationid")

    first, second = await asyncio.gather(work("acme"), work("globex"))

    assert first == ("acme", "request-of-acme")
    assert second == ("globex", "request-of-globex")
