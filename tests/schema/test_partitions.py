"""Partitions are ranges of days, without gaps, made while writers go on."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import IntegrityError

from pillarbox.event.ids import first_id, time_of
from pillarbox.schema import SchemaOptions, apply
from pillarbox.schema.partitions import (
    DAY,
    Partition,
    covered_until,
    ensure,
    existing_partitions,
    missing,
    running_out,
)
from pillarbox.schema.tables import outbox
from tests.schema.rows import new_id, record

NOW = datetime(2026, 11, 15, 13, 30, tzinfo=UTC)
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the time zone comes from the strategy


def test_partitions_are_named_after_their_first_day() -> None:
    names = [partition.name for partition in missing([], NOW, ahead=2 * DAY)]

    assert names == ["outbox_p20261114", "outbox_p20261115", "outbox_p20261116", "outbox_p20261117"]


def test_bounds_are_the_first_ids_of_a_day() -> None:
    partition = next(iter(missing([], NOW, ahead=DAY)))

    assert partition.lower == UUID("01a1d75a-9400-0000-0000-000000000000")
    assert time_of(partition.lower) == datetime(2026, 11, 14, tzinfo=UTC)
    assert time_of(partition.upper) == datetime(2026, 11, 15, tzinfo=UTC)


@given(at=times)
def test_an_id_of_a_time_is_at_or_above_its_bound(at: datetime) -> None:
    assert first_id(at) <= new_id(at) < first_id(at + timedelta(milliseconds=2))
    assert abs(time_of(first_id(at)) - at) < timedelta(milliseconds=1)


@given(
    now=times,
    ahead=st.integers(1, 40),
    first=st.integers(1, 9),
    then=st.integers(1, 9),
    later=st.integers(0, 60),
)
def test_ranges_never_overlap_and_leave_no_gap(
    now: datetime, ahead: int, first: int, then: int, later: int
) -> None:
    existing = list(missing([], now, ahead=ahead * DAY, days=first))
    moment = now + later * DAY

    added = list(missing(existing, moment, ahead=ahead * DAY, days=then))

    ranges = sorted(existing + added)
    assert all(left.end <= right.start for left, right in pairwise(ranges))
    assert covered_until(ranges, moment - DAY) >= moment + ahead * DAY
    assert not list(missing(ranges, moment, ahead=ahead * DAY, days=then))


def test_a_gap_is_closed_up_to_the_next_partition() -> None:
    later = Partition(NOW.replace(day=17, hour=0, minute=0), NOW.replace(day=20, hour=0, minute=0))

    added = list(missing([later], NOW, ahead=6 * DAY, days=7))

    assert added[-1].start == later.end
    assert [partition.end for partition in added if partition.end <= later.start][-1] == later.start


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [(20, None), (3, "partitions run out in 3.4 days"), (-1, "no partition takes the events")],
)
def test_the_end_is_announced(ahead: int, expected: str | None) -> None:
    existing = list(missing([], NOW, ahead=20 * DAY))
    end = NOW + ahead * DAY
    existing = [partition for partition in existing if partition.start <= end]

    problem = running_out(existing, NOW)

    assert problem is None if expected is None else str(problem).startswith(expected)


def test_what_is_missing_is_made_and_only_that(engine: Engine) -> None:
    apply(engine, SchemaOptions(schema="shop", partitioned=True, ahead=2 * DAY), now=NOW)

    with engine.begin() as connection:
        made = ensure(connection, NOW + DAY, ahead=2 * DAY, schema="shop")

        assert [partition.name for partition in made] == ["outbox_p20261118"]
        names = [p.name for p in existing_partitions(connection, "shop")]
        assert names == [f"outbox_p202611{day}" for day in range(14, 19)]


def test_applying_again_makes_more(engine: Engine) -> None:
    options = SchemaOptions(partitioned=True)
    apply(engine, options, now=NOW)

    steps = apply(engine, now=NOW + 5 * DAY)

    assert [step.title for step in steps] == [
        "tables, version 1",
        "tables, version 2",
        "tables, version 3",
        "5 partitions, until 2026-12-05",
    ]


def test_writers_go_on_while_partitions_are_made(engine: Engine) -> None:
    apply(engine, SchemaOptions(partitioned=True, ahead=DAY))

    with engine.begin() as writer, engine.begin() as maker:
        record(writer, 1)
        maker.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
        made = ensure(maker, datetime.now(UTC), ahead=5 * DAY)
        writer.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
        record(writer, 2)

        assert len(made) == 4


def test_rows_go_to_the_partition_of_their_id(engine: Engine) -> None:
    apply(engine, SchemaOptions(partitioned=True), now=NOW)

    with engine.begin() as connection:
        record(connection, 1, id=new_id(NOW))
        record(connection, 2, id=new_id(NOW + DAY))
        homes = connection.scalars(text("SELECT tableoid::regclass::text FROM outbox ORDER BY seq"))

        assert list(homes) == ["outbox_p20261115", "outbox_p20261116"]


def test_an_id_outside_all_ranges_is_refused_because_no_default_partition_takes_it(
    engine: Engine,
) -> None:
    apply(engine, SchemaOptions(partitioned=True), now=NOW)

    with engine.begin() as connection, pytest.raises(IntegrityError, match="no partition of"):
        record(connection, 1, id=new_id(NOW + 60 * DAY))


def test_a_partition_has_every_index_and_its_own_vacuum_settings(engine: Engine) -> None:
    apply(engine, SchemaOptions(partitioned=True), now=NOW)

    with engine.connect() as connection:
        query = text("SELECT count(*) FROM pg_indexes WHERE tablename = 'outbox_p20261115'")
        options = text("SELECT reloptions FROM pg_class WHERE relname = 'outbox_p20261115'")

        assert connection.scalar(query) == len(outbox.indexes) + 1
        assert "autovacuum_vacuum_scale_factor=0.01" in connection.scalar(options)
        assert connection.execute(select(outbox.c.id)).all() == []
