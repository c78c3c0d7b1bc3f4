"""The hash is stored in every row and computed elsewhere too: these numbers never change."""

from collections import Counter
from typing import Final

import psycopg
import pytest

from pillarbox.event.shard import gate_of, place_of, shard_of
from pillarbox.servers import Postgres

GOLDEN: Final = (
    ("default", "o-1", 52450, -6557471516966826524),
    ("default", "o-2", 34811, -4890986929342071341),
    ("default", "1", 60392, 8495678856051963497),
    ("default", "42", 47567, -6635677970480545104),
    ("default", "123", 26428, 6460706728303774456),
    ("default", "customer-1", 12180, 7676813661848872300),
    ("default", "customer-2", 62286, -4543459984492707273),
    ("default", "a", 49156, 233791551210601774),
    ("default", "A", 9605, -5594905148811311250),
    ("default", "inner space", 52169, 6986763271791482370),
    ("default", "Zo\u00eb", 60770, -4095171234890286934),
    ("default", "注文-1", 43073, 3408329509112114392),
    ("default", "🚚", 56113, 7454223936260442822),
    ("default", "x" * 255, 24883, -2602822782940674386),
    ("default", "0190d8a4-0000-7000-8000-000000000001", 19221, -5238083406314064406),
    ("default", "0190d8a4-0000-7000-8000-000000000002", 60536, -7871096956901213954),
    ("default", "order/7", 15162, 8939495410475013793),
    ("default", "a.b.c", 18211, -2427648000684924696),
    ("acme", "o-1", 53856, -3704646859544553392),
    ("globex", "o-1", 54091, 3893616207040595878),
    ("acme-eu", "o-1", 37982, -7896102119256259856),
    ("acme", "eu-o-1", 24419, -3350164888858467147),
    ("t.1_a", "o-1", 26158, 8115269774000138840),
    ("A" * 64, "o-1", 37557, -8797456670260876645),
)
GOLDEN_GATES: Final = (
    ("default", -4631411601433302584),
    ("acme", -1298308752185111613),
    ("globex", -4221381226003919678),
)

_PLACE_IN_SQL: Final = """
    SELECT (get_byte(digest, 0) << 8) | get_byte(digest, 1),
        CAST(CAST('x' || encode(substring(digest FROM 3 FOR 8), 'hex') AS bit(64)) AS bigint)
    FROM sha256(
        convert_to(%s, 'UTF8') || CAST('\\x00' AS bytea) || convert_to(%s, 'UTF8')
    ) AS digest
"""


@pytest.mark.parametrize(("tenant_id", "key", "shard_hash", "lock"), GOLDEN)
def test_a_key_has_the_hash_and_the_lock_that_it_always_had(
    tenant_id: str, key: str, shard_hash: int, lock: int
) -> None:
    assert place_of(tenant_id, key) == (shard_hash, lock)


@pytest.mark.parametrize(("tenant_id", "gate"), GOLDEN_GATES)
def test_a_tenant_has_the_gate_that_it_always_had(tenant_id: str, gate: int) -> None:
    assert gate_of(tenant_id) == gate


def test_plain_sql_computes_the_same_hash_and_the_same_lock(postgres18: Postgres) -> None:
    with psycopg.connect(postgres18.url) as connection:
        for tenant_id, key, shard_hash, lock in GOLDEN:
            computed = connection.execute(_PLACE_IN_SQL, (tenant_id, key)).fetchone()

            assert computed == (shard_hash, lock), (tenant_id, key)


def test_equal_keys_of_two_tenants_belong_to_different_places() -> None:
    assert place_of("acme", "o-1") != place_of("globex", "o-1")


def test_a_tenant_and_a_key_do_not_run_into_one_another() -> None:
    assert place_of("acme", "eu-o-1") != place_of("acme-eu", "o-1")


@pytest.mark.parametrize("count", [1, 2, 16, 64, 1024])
def test_a_shard_is_a_number_below_the_count(count: int) -> None:
    shards = {shard_of(shard_hash, count) for shard_hash in range(1 << 16)}

    assert shards == set(range(count))


def test_doubling_the_count_splits_each_shard_in_two() -> None:
    for shard_hash in range(0, 1 << 16, 7):
        assert shard_of(shard_hash, 128) in {
            shard_of(shard_hash, 64),
            shard_of(shard_hash, 64) + 64,
        }


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([f"o-{n}" for n in range(64_000)], id="numbered"),
        pytest.param([str(n) for n in range(64_000)], id="plain-numbers"),
        pytest.param([f"{n:032x}" for n in range(64_000)], id="long-and-alike"),
    ],
)
def test_the_keys_of_one_tenant_spread_evenly_over_64_shards(keys: list[str]) -> None:
    load = Counter(shard_of(place_of("default", key).shard_hash, 64) for key in keys)

    assert len(load) == 64
    # A thousand keys fall into each shard; five standard deviations are about 160.
    assert all(abs(count - 1_000) < 160 for count in load.values())


def test_the_locks_of_many_keys_all_differ() -> None:
    assert len({place_of("default", f"o-{n}").lock for n in range(100_000)}) == 100_000
