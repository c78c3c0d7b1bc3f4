-- Purpose: make the two group roles, unless they are there; login roles become their members.
-- Locks: none that others wait for. Roles belong to the whole cluster, so two runs may meet.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '@{application}') THEN
        CREATE ROLE "@{application}" NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '@{projector}') THEN
        CREATE ROLE "@{projector}" NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;
