-- Purpose: begin a transaction of several statements: it may not rest for longer than a lease.
-- Locks: none.
-- An owner that freezes in the middle must not hold what it locks for ever: the server ends its session.
SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, true)
