-- The statements of a governed call, each one round trip: context → open → (start) → close. They set
-- the tenant themselves and run as the app role, so row-level security holds inside them.
--
-- A live call is `state <> 'ended'` here, not `ended_at IS NULL`: the latter fits the partial index of
-- the reaper, and a planner without statistics then reads all live calls to find one.

-- All that resolving, policy and admission look at. No row: the session is not this person's.
CREATE FUNCTION call_context(p_tenant uuid, p_user uuid, p_session uuid, p_agent_name text)
RETURNS TABLE (
    session_archived boolean, approval_mode text, permission_epoch_id uuid, user_active boolean,
    tenant_sources text[], project_sources text[], session_sources text[],
    server_id text, server_name text, server_enabled boolean, transport text, url text, auth_mode text,
    config_revision bigint, timeout_seconds integer, governance jsonb, headers jsonb,
    tool_id text, original_name text, tool_enabled boolean, policy text, pin text, tool_removed boolean,
    definition_hash bytea, permission_grant_id uuid)
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
               l.tool_id, l.original_name, l.enabled, l.policy, l.pin, l.removed_at IS NOT NULL,
               l.definition_hash,
               (SELECT g.permission_grant_id FROM permission_grants g
                WHERE g.tenant_id = p_tenant AND g.session_id = p_session AND g.action = 'tool_call'
                  AND g.resource_class = l.server_id || '/' || l.tool_id
                  AND g.definition_hash = l.definition_hash AND g.state = 'active'
                LIMIT 1)
        FROM sessions s
        JOIN tenants t ON t.tenant_id = s.tenant_id
        JOIN users u ON u.tenant_id = s.tenant_id AND u.user_id = s.owner_user_id
        LEFT JOIN projects p ON p.tenant_id = s.tenant_id AND p.project_id = s.project_id
        LEFT JOIN mcp_tools l ON l.tenant_id = s.tenant_id AND l.agent_name = p_agent_name
        LEFT JOIN mcp_servers v ON v.tenant_id = l.tenant_id AND v.server_id = l.server_id
        WHERE s.tenant_id = p_tenant AND s.session_id = p_session AND s.owner_user_id = p_user;
END $$;

-- What must still hold when a request leaves: person and token, server, switches, policy, pin. Always
-- one row.
CREATE FUNCTION read_back(
    p_tenant uuid, p_user uuid, p_token uuid, p_server text, p_tool text, p_at timestamptz)
RETURNS TABLE (
    user_active boolean, server_enabled boolean, config_revision bigint, auth_mode text,
    tool_present boolean, tool_enabled boolean, tool_denied boolean, tool_approved boolean,
    definition_hash bytea)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(u.status = 'active', false)
               AND (p_token IS NULL OR EXISTS (
                   SELECT FROM api_tokens k
                   WHERE k.tenant_id = p_tenant AND k.token_id = p_token
                     AND k.revoked_at IS NULL AND k.expires_at > p_at)),
           v.enabled, v.config_revision, v.auth_mode,
           l.tool_id IS NOT NULL AND l.removed_at IS NULL, coalesce(l.enabled, false),
           coalesce(l.policy = 'deny', false), coalesce(l.pin = 'approved', false), l.definition_hash
    FROM (VALUES (1)) AS one (row)
    LEFT JOIN users u ON u.tenant_id = p_tenant AND u.user_id = p_user
    LEFT JOIN mcp_servers v ON v.tenant_id = p_tenant AND v.server_id = p_server
    LEFT JOIN mcp_tools l ON l.tenant_id = p_tenant AND l.server_id = p_server AND l.tool_id = p_tool
$$;

-- Makes a call durable before anything is sent: its bytes, its live row, its record and, where it is
-- settled already, its authorization with the leaf. Answers the read-back of the same moment.
CREATE FUNCTION open_call(
    p_tenant uuid, p_execution uuid, p_call_id text, p_invocation uuid, p_session uuid, p_user uuid,
    p_token uuid, p_origin text, p_source text, p_tool text, p_asked_name text, p_entry jsonb,
    p_request_sha256 bytea, p_request_body bytea, p_node uuid, p_state text, p_sent boolean, p_at timestamptz,
    p_authorization uuid, p_action text, p_resource text, p_mode text, p_outcome text, p_authorized_by text,
    p_epoch uuid, p_grant uuid, p_definition_hash bytea, p_input_digest bytea, p_authorization_leaf bytea)
RETURNS TABLE (
    user_active boolean, server_enabled boolean, config_revision bigint, auth_mode text,
    tool_present boolean, tool_enabled boolean, tool_denied boolean, tool_approved boolean,
    definition_hash bytea)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    IF p_request_body IS NOT NULL THEN
        INSERT INTO cas_objects (tenant_id, sha256, size_bytes, body, created_at)
        VALUES (p_tenant, p_request_sha256, octet_length(p_request_body), p_request_body, p_at)
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO tool_calls (tenant_id, execution_id, call_id, invocation_id, session_id, authorization_id,
                            node_id, state, sent_at, created_at)
    VALUES (p_tenant, p_execution, p_call_id, p_invocation, p_session, p_authorization,
            p_node, p_state, CASE WHEN p_sent THEN p_at END, p_at);
    INSERT INTO invocations (tenant_id, invocation_id, session_id, user_id, execution_id, call_id, token_id,
                             origin, source_id, tool_id, asked_name, entry, request_sha256, created_at)
    VALUES (p_tenant, p_invocation, p_session, p_user, p_execution, p_call_id, p_token,
            p_origin, p_source, p_tool, p_asked_name, p_entry, p_request_sha256, p_at);
    IF p_authorization IS NOT NULL THEN
        INSERT INTO permission_authorizations (
            tenant_id, authorization_id, session_id, user_id, action, resource, approval_mode, outcome,
            source, permission_epoch_id, permission_grant_id, execution_id, tool_call_id,
            definition_hash, input_digest, created_at)
        VALUES (p_tenant, p_authorization, p_session, p_user, p_action, p_resource, p_mode, p_outcome,
                p_authorized_by, p_epoch, p_grant, p_execution, p_call_id,
                p_definition_hash, p_input_digest, p_at);
        INSERT INTO audit_leaves (tenant_id, kind, subject_id, sha256)
        VALUES (p_tenant, 'authorization', p_authorization, p_authorization_leaf);
    END IF;
    RETURN QUERY SELECT * FROM read_back(p_tenant, p_user, p_token, p_source, p_tool, p_at);
END $$;

-- A call that waited or queued is about to be sent. No row: it is no longer this node's to send.
CREATE FUNCTION start_call(
    p_tenant uuid, p_execution uuid, p_call_id text, p_node uuid, p_user uuid, p_token uuid, p_source text,
    p_tool text, p_at timestamptz)
RETURNS TABLE (
    user_active boolean, server_enabled boolean, config_revision bigint, auth_mode text,
    tool_present boolean, tool_enabled boolean, tool_denied boolean, tool_approved boolean,
    definition_hash bytea)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    UPDATE tool_calls SET state = 'running', sent_at = p_at
    WHERE tenant_id = p_tenant AND execution_id = p_execution AND call_id = p_call_id
      AND node_id = p_node AND state <> 'ended';
    IF FOUND THEN
        RETURN QUERY SELECT * FROM read_back(p_tenant, p_user, p_token, p_source, p_tool, p_at);
    END IF;
END $$;

-- Closes a call: record, live row, bytes, leaf and event in one transaction. False: it was closed
-- before (by the reaper, or by an earlier try of this very statement), and nothing was changed.
CREATE FUNCTION close_call(
    p_tenant uuid, p_execution uuid, p_call_id text, p_invocation uuid, p_session uuid,
    p_status text, p_error_code text, p_error_message text, p_retryable boolean, p_queue_wait_ms bigint,
    p_duration_ms bigint, p_cache_hit boolean, p_attempts jsonb, p_warnings jsonb, p_authorization uuid,
    p_raw_sha256 bytea, p_raw_body bytea, p_result_sha256 bytea, p_result_body bytea,
    p_at timestamptz, p_leaf bytea, p_event jsonb)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    UPDATE tool_calls
    SET state = 'ended', ended_at = p_at, raw_sha256 = coalesce(p_raw_sha256, raw_sha256),
        result_sha256 = coalesce(p_result_sha256, result_sha256)
    WHERE tenant_id = p_tenant AND execution_id = p_execution AND call_id = p_call_id
      AND state <> 'ended';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_raw_body IS NOT NULL THEN
        INSERT INTO cas_objects (tenant_id, sha256, size_bytes, body, created_at)
        VALUES (p_tenant, p_raw_sha256, octet_length(p_raw_body), p_raw_body, p_at)
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_result_body IS NOT NULL THEN
        INSERT INTO cas_objects (tenant_id, sha256, size_bytes, body, created_at)
        VALUES (p_tenant, p_result_sha256, octet_length(p_result_body), p_result_body, p_at)
        ON CONFLICT DO NOTHING;
    END IF;
    UPDATE invocations
    SET status = p_status, error_code = p_error_code, error_message = p_error_message,
        retryable = p_retryable, queue_wait_ms = p_queue_wait_ms, duration_ms = p_duration_ms,
        cache_hit = p_cache_hit, attempts = p_attempts, warnings = p_warnings,
        authorization_id = p_authorization, raw_sha256 = p_raw_sha256, result_sha256 = p_result_sha256,
        finished_at = p_at
    WHERE tenant_id = p_tenant AND invocation_id = p_invocation AND status IS NULL;
    INSERT INTO audit_leaves (tenant_id, kind, subject_id, sha256)
    VALUES (p_tenant, 'invocation', p_invocation, p_leaf);
    INSERT INTO events (tenant_id, session_id, type, data, created_at)
    VALUES (p_tenant, p_session, 'invocation.finished', p_event, p_at);
    RETURN true;
END $$;
