-- Variables of a tenant: sealed values that headers and environments refer to as $NAME.

CREATE TABLE tenant_variables (
    tenant_id  uuid NOT NULL REFERENCES tenants,
    name       text NOT NULL,
    sealed     text NOT NULL,
    -- Which key of the keyring sealed it.
    key_id     text NOT NULL,
    -- Where it may be sent: hosts as URLs have them, `stdio` for programs on our host.
    hosts      text[] NOT NULL,
    updated_at timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, name),
    CONSTRAINT variable_name_legal CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$')
);
CALL protect_tenant_table('tenant_variables', 'SELECT, INSERT, UPDATE, DELETE');

-- Which variables a sealed value refers to; those that stood here before refer to none.
ALTER TABLE mcp_server_secrets ADD COLUMN variables text[] NOT NULL DEFAULT '{}';

-- It came by an import, and nobody has agreed yet to contact it.
ALTER TABLE mcp_servers ADD COLUMN unconfirmed boolean NOT NULL DEFAULT false;

-- What goes to a server besides its headers: the program with its environment, and the variables that
-- its values refer to (none are read where none is referred to). Joined to call_context, so that a call
-- stays one round trip. `only_tenant` is looked up for programs alone.
CREATE FUNCTION server_values(p_tenant uuid, p_server text)
RETURNS TABLE (
    command text, args text[], cwd text, env jsonb, variables jsonb, only_tenant boolean)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    RETURN QUERY
        SELECT v.command, v.args, v.cwd,
               (SELECT jsonb_agg(jsonb_build_array(e.name, e.sealed, e.key_id) ORDER BY e.name)
                FROM mcp_server_secrets e
                WHERE e.tenant_id = p_tenant AND e.server_id = v.server_id AND e.kind = 'env'),
               (SELECT jsonb_agg(jsonb_build_array(t.name, t.sealed, t.key_id, to_jsonb(t.hosts)))
                FROM tenant_variables t
                WHERE t.tenant_id = p_tenant AND t.name = ANY (ARRAY(
                    SELECT unnest(s.variables) FROM mcp_server_secrets s
                    WHERE s.tenant_id = p_tenant AND s.server_id = v.server_id))),
               v.transport = 'stdio' AND (SELECT count(*) FROM (SELECT FROM tenants LIMIT 2) few) < 2
        FROM mcp_servers v
        WHERE v.tenant_id = p_tenant AND v.server_id = p_server;
END $$;
