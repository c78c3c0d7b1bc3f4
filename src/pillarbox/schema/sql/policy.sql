-- Purpose: let a role see and write the rows of the tenant that its transaction names.
-- Locks: ACCESS EXCLUSIVE on the table for a moment.
-- FORCE binds the owner too. Without a tenant the setting is missing, or '' after SET LOCAL:
-- both become NULL, which equals nothing.
ALTER TABLE @{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS pillarbox_tenant ON @{table};
CREATE POLICY pillarbox_tenant ON @{table} TO @{application}
    USING ("@{column}" = nullif(current_setting('@{setting}', true), '')@{cast})
    WITH CHECK ("@{column}" = nullif(current_setting('@{setting}', true), '')@{cast});
