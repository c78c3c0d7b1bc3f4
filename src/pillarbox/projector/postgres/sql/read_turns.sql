-- Purpose: the part of read.sql that reads the backlog, some rows for each (shard, tenant).
UNION ALL
    SELECT row.*, pair.turn::integer,
        @{size}
    FROM unnest(
        %(pair_shards)s::integer[], %(pair_tenants)s::text[], %(pair_after)s::bigint[],
        %(pair_quotas)s::integer[]
    ) WITH ORDINALITY AS pair(shard, tenant_id, after, quota, turn)
    CROSS JOIN LATERAL (
        SELECT o.* FROM @{schema}outbox AS o
        WHERE o.status = 'NEW' AND o.set_aside IS NULL
            AND (o.shard_hash & @{mask}) = pair.shard AND o.tenant_id = pair.tenant_id
            AND o.seq > pair.after
        ORDER BY o.seq LIMIT pair.quota
    ) AS row
    WHERE (SELECT fits FROM header)
