-- It came by an import: whatever changes whom it makes us contact is shown anew before it is contacted.
ALTER TABLE mcp_servers ADD COLUMN imported boolean NOT NULL DEFAULT false;

-- Of those that were confirmed before only the audit knows how they came.
UPDATE mcp_servers s SET imported = true
WHERE s.unconfirmed OR EXISTS (
    SELECT FROM audit_events a
    WHERE a.tenant_id = s.tenant_id AND a.action = 'server.imported' AND a.subject = s.server_id);
