-- A call that waits for a person, or for what its client is asked by the server, can be left and come
-- back to: its client holds a sealed requestState instead of the line. Besides, a call is found by the server's own name of the tool, and what a call
-- asks of a server may be no tool at all.

ALTER TABLE tool_calls
    -- Nobody holds the line.
    ADD COLUMN parked boolean NOT NULL DEFAULT false,
    -- Set as soon as a client can come back to the call, which it may until then; no more once it is
    -- about to be sent.
    ADD COLUMN resumable_until timestamptz,
    -- Of the rounds so far, where it was left.
    ADD COLUMN attempts jsonb,
    ADD CONSTRAINT parked_call_expires CHECK (NOT parked OR resumable_until IS NOT NULL);
CREATE INDEX tool_calls_parked ON tool_calls (resumable_until) WHERE parked AND ended_at IS NULL;

-- All that resolving, policy and admission look at. The tool is named as agents name it, or by server
-- and original name; or nothing but a server is named, and the classes of what is asked of it. No row:
-- the session is not this person's.
CREATE FUNCTION call_context(
    p_tenant uuid, p_user uuid, p_session uuid, p_agent_name text, p_server text, p_original_name text,
    p_classes text[])
RETURNS TABLE (
    session_archived boolean, approval_mode text, permission_epoch_id uuid, user_active boolean,
    tenant_sources text[], project_sources text[], session_sources text[],
    server_id text, server_name text, server_enabled boolean, transport text, url text, auth_mode text,
    config_revision bigint, timeout_seconds integer, governance jsonb, headers jsonb,
    tool_id text, agent_name text, original_name text, tool_enabled boolean, policy text, pin text,
    tool_removed boolean, definition_hash bytea, permission_grant_id uuid)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    RETURN QUERY
        SELECT s.archived_at IS NOT NULL, s.approval_mode, s.permission_epoch_id, u.status = 'active',
               t.enabled_source_ids, p.enabled_source_ids, s.enabled_source_ids,
               v.server_id, v.name, v.enabled, v.transport, v.url, v.auth_mode,
               v.config_revision, v.timeout_seconds, v.governance,
               (SELECT jsonb_agg(jsonb_build_array(h.name, h.sealed, h.key_id) ORDER BY h.name)
                FROM mcp_server_secrets h
                WHERE h.tenant_id = p_tenant AND h.server_id = v.server_id AND h.kind = 'header'),
               l.tool_id, l.agent_name, l.original_name, l.enabled, l.policy, l.pin,
               l.removed_at IS NOT NULL, l.definition_hash,
               CASE WHEN p_classes IS NULL THEN
                   (SELECT g.permission_grant_id FROM permission_grants g
                    WHERE g.tenant_id = p_tenant AND g.session_id = p_session AND g.action = 'tool_call'
                      AND g.resource_class = l.server_id || '/' || l.tool_id
                      AND g.definition_hash = l.definition_hash AND g.state = 'active'
                    LIMIT 1)
               ELSE
                   (SELECT g.permission_grant_id FROM permission_grants g
                    WHERE g.tenant_id = p_tenant AND g.session_id = p_session AND g.action = 'tool_call'
                      AND g.resource_class = ANY(p_classes)
                      AND g.definition_hash IS NULL AND g.state = 'active'
                    LIMIT 1)
               END
        FROM sessions s
        JOIN tenants t ON t.tenant_id = s.tenant_id
        JOIN users u ON u.tenant_id = s.tenant_id AND u.user_id = s.owner_user_id
        LEFT JOIN projects p ON p.tenant_id = s.tenant_id AND p.project_id = s.project_id
        LEFT JOIN mcp_tools l ON l.tenant_id = s.tenant_id AND l.agent_name = coalesce(p_agent_name, (
            SELECT o.agent_name FROM mcp_tools o
            WHERE o.tenant_id = p_tenant AND o.server_id = p_server AND o.original_name = p_original_name))
        LEFT JOIN mcp_servers v ON v.tenant_id = s.tenant_id
            AND v.server_id = coalesce(l.server_id, p_server)
        WHERE s.tenant_id = p_tenant AND s.session_id = p_session AND s.owner_user_id = p_user;
END $$;

-- As it was, and from here on nobody can come back to the call.
CREATE OR REPLACE FUNCTION start_call(
    p_tenant uuid, p_execution uuid, p_call_id text, p_node uuid, p_user uuid, p_token uuid, p_source text,
    p_tool text, p_at timestamptz)
RETURNS TABLE (
    user_active boolean, server_enabled boolean, config_revision bigint, auth_mode text,
    tool_present boolean, tool_enabled boolean, tool_denied boolean, tool_approved boolean,
    definition_hash bytea)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    UPDATE tool_calls SET state = 'running', sent_at = p_at, parked = false, resumable_until = NULL
    WHERE tenant_id = p_tenant AND execution_id = p_execution AND call_id = p_call_id
      AND node_id = p_node AND state <> 'ended';
    IF FOUND THEN
        RETURN QUERY SELECT * FROM read_back(p_tenant, p_user, p_token, p_source, p_tool, p_at);
    END IF;
END $$;

-- Calls that nobody will end: their node is dead, or their client did not come back in time. One that
-- its client can still come back to needs no node.
CREATE FUNCTION due_dead_calls(at timestamptz, most integer)
RETURNS TABLE (tenant_id uuid, execution_id uuid, call_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    (SELECT c.tenant_id, c.execution_id, c.call_id FROM tool_calls c
     LEFT JOIN nodes n ON n.node_id = c.node_id
     WHERE c.ended_at IS NULL AND NOT c.parked
       AND (n.node_id IS NULL OR n.ended_at IS NOT NULL OR n.lease_expires_at < clock_timestamp())
       AND (c.resumable_until IS NULL OR c.state <> 'waiting' OR c.resumable_until <= at)
     LIMIT most)
    UNION ALL
    (SELECT c.tenant_id, c.execution_id, c.call_id FROM tool_calls c
     WHERE c.ended_at IS NULL AND c.parked AND c.resumable_until <= at
     LIMIT most)
    LIMIT most
$$;

-- For processes of the version before: the same calls.
CREATE OR REPLACE FUNCTION due_dead_calls(most integer)
RETURNS TABLE (tenant_id uuid, execution_id uuid, call_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM due_dead_calls(clock_timestamp(), most)
$$;
