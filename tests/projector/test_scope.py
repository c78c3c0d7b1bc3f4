"""Whom a projector serves, and when two serve the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.errors import InvalidConfig, InvalidKey
from pillarbox.projector.scope import ALL, Scope, bucket_of, read_scope, scope_of

TENANTS = [f"tenant-{number}" for number in range(40)]
buckets = st.integers(1, 6).flatmap(
    lambda count: st.integers(0, count - 1).map(lambda number: Scope(bucket=number, buckets=count))
)
lists = st.lists(st.sampled_from(TENANTS), min_size=1, max_size=5).map(scope_of)
scopes = st.one_of(st.just(ALL), buckets, lists)


@given(scopes, scopes)
def test_scopes_that_serve_a_common_tenant_overlap(one: Scope, other: Scope) -> None:
    common = [tenant for tenant in TENANTS if one.serves(tenant) and other.serves(tenant)]

    assert one.overlaps(other) or not common
    assert one.overlaps(other) == other.overlaps(one)


@given(lists, scopes)
def test_a_list_overlaps_only_what_serves_one_of_it(one: Scope, other: Scope) -> None:
    assert one.overlaps(other) == any(other.serves(tenant) for tenant in one.tenants)


def test_buckets_of_one_count_overlap_only_themselves() -> None:
    scopes = [scope_of(None, bucket=f"{number}/4") for number in range(4)]

    overlapping = [(a, b) for a in scopes for b in scopes if a.overlaps(b)]

    assert overlapping == [(scope, scope) for scope in scopes]


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_tenant_belongs_to_one_bucket(tenant: str) -> None:
    serving = [n for n in range(8) if scope_of(None, bucket=f"{n}/8").serves(tenant)]

    assert serving == [bucket_of(tenant, 8)]


def test_the_bucket_of_a_tenant_never_changes() -> None:
    assert [bucket_of(tenant, 8) for tenant in ("default", "acme", "tenant-7")] == [0, 3, 6]


@given(scopes)
def test_a_scope_is_read_as_it_was_written(scope: Scope) -> None:
    assert read_scope(str(scope)) == scope


def test_a_list_is_the_same_in_any_order_and_with_repeats() -> None:
    assert scope_of(["b", "a", "b"]) == scope_of(("a", "b"))
    assert scope_of("a") == scope_of(["a"])


def test_a_long_list_has_a_short_name_of_its_own() -> None:
    tenants = [f"tenant-with-a-rather-long-name-{number}" for number in range(12)]
    scope, without_one = scope_of(tenants), scope_of(tenants[1:])

    assert len(scope.name) <= 255
    assert scope.name != without_one.name


def test_no_tenant_is_every_tenant_and_an_empty_list_is_refused() -> None:
    assert scope_of(None) == ALL
    with pytest.raises(InvalidConfig, match="empty list"):
        scope_of([])


@pytest.mark.parametrize("tenant", ["", "a,b", "a:b", "*"])
def test_a_tenant_that_is_none_is_refused(tenant: str) -> None:
    with pytest.raises(InvalidKey):
        scope_of([tenant])


@pytest.mark.parametrize("text", ["", "1", "4/4", "-1/4", "0/0", "0/1025", "a/b", "1/2/3"])
def test_a_bucket_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="bucket is"):
        scope_of(None, bucket=text)


def test_a_bucket_and_tenants_together_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="together"):
        scope_of("acme", bucket="0/2")
