-- Purpose: what the bank's handlers write, and which accounts are closed for the time being.
-- Locks: none that last; run once in a fresh database, after the inbox is there.
-- No table refuses a second effect: it is for the checker to find.

CREATE TABLE account (
    consumer text NOT NULL,
    tenant text NOT NULL,
    account text NOT NULL,
    balance bigint NOT NULL,
    trail text NOT NULL,
    PRIMARY KEY (consumer, tenant, account)
);

CREATE TABLE effect (
    number bigserial PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    consumer text NOT NULL,
    tenant text NOT NULL,
    account text NOT NULL,
    n bigint NOT NULL,
    message_id text NOT NULL,
    balance bigint NOT NULL,
    attempt integer NOT NULL,
    process text NOT NULL
);

CREATE INDEX effect_message ON effect (consumer, tenant, message_id);

CREATE TABLE closed (
    account text PRIMARY KEY
);
