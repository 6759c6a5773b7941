-- A node that was wrongly thought dead does not close a call that another one took up, nor the reaper one
-- that its client just came back to.

-- The form without the last two stays for processes of the version before, which run on.
CREATE FUNCTION close_call(
    p_tenant uuid, p_execution uuid, p_call_id text, p_invocation uuid, p_session uuid,
    p_status text, p_error_code text, p_error_message text, p_retryable boolean, p_queue_wait_ms bigint,
    p_duration_ms bigint, p_cache_hit boolean, p_attempts jsonb, p_warnings jsonb, p_authorization uuid,
    p_raw_sha256 bytea, p_raw_body bytea, p_result_sha256 bytea, p_result_body bytea,
    p_at timestamptz, p_leaf bytea, p_event jsonb, p_node uuid, p_parked boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    UPDATE tool_calls
    SET state = 'ended', ended_at = p_at, raw_sha256 = coalesce(p_raw_sha256, raw_sha256),
        result_sha256 = coalesce(p_result_sha256, result_sha256)
    WHERE tenant_id = p_tenant AND execution_id = p_execution AND call_id = p_call_id
      AND state <> 'ended' AND node_id = p_node AND (p_parked IS NULL OR parked = p_parked);
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
