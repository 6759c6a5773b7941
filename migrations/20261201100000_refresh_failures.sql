-- A refresh that brought nothing is not repeated at once: `refresh_until` without `refresh_by` is the pause
-- until the next one, which grows with the failures in a row.

ALTER TABLE mcp_connections ADD COLUMN refresh_failures integer NOT NULL DEFAULT 0;
