-- $ROWS finished calls of the session that made the first one, kept aside in the schema `bench`, and a
-- procedure that puts them into the tables. As superuser, in the service's database.

CREATE SCHEMA bench;

-- A UUIDv7 of that moment (RFC 9562, section 5.7).
CREATE FUNCTION bench.uuid_at(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT (left(uuid_of_time(at)::text, 14) || '7' || substr(random, 1, 3) || '-8' || substr(random, 4, 3)
            || '-' || substr(random, 7, 12))::uuid
    FROM (SELECT md5(random()::text || clock_timestamp()::text) AS random) AS one
$$;

-- Each row once, with every id and byte that the tables share. Ten calls a second until now.
CREATE UNLOGGED TABLE bench.calls AS
SELECT made.*, i.tenant_id, i.session_id, i.user_id, i.token_id, i.source_id, i.tool_id, i.asked_name, i.entry,
       i.attempts, bench.uuid_at(made.at) AS invocation_id, bench.uuid_at(made.at) AS execution_id,
       bench.uuid_at(made.at) AS authorization_id, t.node_id,
       convert_to('{"input":{"number":' || made.row || ',"text":"this is call ' || made.row
           || ' of history"},"sourceId":"' || i.source_id || '","toolId":"' || i.tool_id || '"}', 'UTF8') AS request,
       convert_to('{"resultType":"complete","content":[{"type":"text","text":"this is call ' || made.row
           || ' of history"}],"structuredContent":{"text":"this is call ' || made.row || ' of history","number":'
           || made.row || '},"isError":false}', 'UTF8') AS raw,
       convert_to('{"records":[],"warnings":[],"data":{"content":[{"type":"text","text":"this is call '
           || made.row || ' of history"}],"structuredContent":{"text":"this is call ' || made.row
           || ' of history","number":' || made.row || '}},"attribution":"Bench","license":"unknown","retrievedAt":"'
           || made.at::text || '","sourceId":"' || i.source_id || '","toolId":"' || i.tool_id
           || '","untrusted":true}', 'UTF8') AS result
FROM invocations i
JOIN tool_calls t ON t.tenant_id = i.tenant_id AND t.invocation_id = i.invocation_id
CROSS JOIN (
    SELECT row, now() - (interval '100 ms' * ($ROWS - row + 10)) AS at FROM generate_series(1, $ROWS) AS row
) AS made;

CREATE UNLOGGED TABLE bench.template AS
SELECT a.action, a.resource, a.approval_mode, a.permission_epoch_id, a.definition_hash,
       (SELECT g.permission_grant_id FROM permission_grants g LIMIT 1) AS permission_grant_id
FROM permission_authorizations a;

CREATE PROCEDURE bench.reset() LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE cas_objects, tool_calls, invocations, permission_authorizations, audit_leaves, events;

    INSERT INTO cas_objects (tenant_id, sha256, size_bytes, body, created_at)
    SELECT c.tenant_id, sha256(b.body), octet_length(b.body), b.body, c.at
    FROM bench.calls c CROSS JOIN LATERAL (VALUES (c.request), (c.raw), (c.result)) AS b (body)
    ORDER BY c.row
    ON CONFLICT DO NOTHING;

    INSERT INTO tool_calls (tenant_id, execution_id, call_id, invocation_id, session_id, authorization_id, node_id,
                            state, sent_at, raw_sha256, result_sha256, created_at, ended_at)
    SELECT c.tenant_id, c.execution_id, c.row::text, c.invocation_id, c.session_id, c.authorization_id, c.node_id,
           'ended', c.at, sha256(c.raw), sha256(c.result), c.at, c.at + interval '4 ms'
    FROM bench.calls c ORDER BY c.row;

    INSERT INTO invocations (tenant_id, invocation_id, session_id, user_id, execution_id, call_id, token_id, origin,
                             source_id, tool_id, asked_name, entry, request_sha256, created_at, status,
                             queue_wait_ms, duration_ms, cache_hit, attempts, warnings, authorization_id, raw_sha256,
                             result_sha256, finished_at)
    SELECT c.tenant_id, c.invocation_id, c.session_id, c.user_id, c.execution_id, c.row::text, c.token_id, 'gateway',
           c.source_id, c.tool_id, c.asked_name, c.entry, sha256(c.request), c.at, 'succeeded',
           0, 4, false, c.attempts, '[]', c.authorization_id, sha256(c.raw),
           sha256(c.result), c.at + interval '4 ms'
    FROM bench.calls c ORDER BY c.row;

    INSERT INTO permission_authorizations (tenant_id, authorization_id, session_id, user_id, action, resource,
                                           approval_mode, outcome, source, permission_epoch_id, permission_grant_id,
                                           execution_id, tool_call_id, definition_hash, input_digest, created_at)
    SELECT c.tenant_id, c.authorization_id, c.session_id, c.user_id, t.action, t.resource,
           t.approval_mode, 'allowed', 'existing_grant', t.permission_epoch_id, t.permission_grant_id,
           c.execution_id, c.row::text, t.definition_hash, sha256(c.request), c.at
    FROM bench.calls c CROSS JOIN bench.template t ORDER BY c.row;

    INSERT INTO audit_leaves (tenant_id, kind, subject_id, sha256)
    SELECT c.tenant_id, l.kind, l.subject_id, sha256(uuid_send(l.subject_id))
    FROM bench.calls c
    CROSS JOIN LATERAL (VALUES ('authorization', c.authorization_id), ('invocation', c.invocation_id))
        AS l (kind, subject_id)
    ORDER BY c.row;

    INSERT INTO events (tenant_id, session_id, type, data, created_at)
    SELECT c.tenant_id, c.session_id, 'invocation.finished',
           jsonb_build_object('invocationId', c.invocation_id, 'sourceId', c.source_id, 'toolId', c.tool_id,
                              'status', 'succeeded', 'errorCode', NULL, 'durationMs', 4),
           c.at + interval '4 ms'
    FROM bench.calls c ORDER BY c.row;
END $$;
