-- Purpose: be no member any more; end the claims that were left open.
-- Locks: its own rows.
WITH ended AS (
    INSERT INTO @{schema}outbox_claim_end (claim_id)
    SELECT claim_id FROM @{schema}outbox_claim WHERE member_id = %(member)s
    ON CONFLICT DO NOTHING
)
DELETE FROM @{schema}outbox_member WHERE member_id = %(member)s
