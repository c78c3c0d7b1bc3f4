-- Purpose: the orders of a shop; each customer's orders are numbered under the lock of its row.
-- Locks: none that last; run once in a fresh database, after the outbox is there.

CREATE TABLE customer (
    customer text PRIMARY KEY,
    n bigint NOT NULL
);

CREATE TABLE customer_order (
    id text PRIMARY KEY,
    customer text NOT NULL,
    n bigint NOT NULL,
    total bigint NOT NULL,
    message_id text NOT NULL,
    version integer NOT NULL
);
