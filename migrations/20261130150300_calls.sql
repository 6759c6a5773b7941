-- Governed calls: the live row, the record for ever, its authorization, its leaf, its event, its bytes.

-- Content-addressed bytes of a tenant. Small bodies sit here, larger ones are immutable chunks in
-- the object store.
CREATE TABLE cas_objects (
    -- No reference to tenants: three objects a call would each look it up, and row-level security
    -- lets in no other tenant's anyway.
    tenant_id  uuid NOT NULL,
    sha256     bytea NOT NULL,
    size_bytes bigint NOT NULL,
    body       bytea,
    chunks     integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),

    PRIMARY KEY (tenant_id, sha256),
    CONSTRAINT cas_digest_is_sha256 CHECK (octet_length(sha256) = 32),
    CONSTRAINT cas_inline_or_chunked CHECK ((body IS NULL) = (chunks > 0))
);
CALL protect_tenant_table('cas_objects', 'SELECT, INSERT');

-- The live state of a call; dropped some days after it ended.
CREATE TABLE tool_calls (
    tenant_id        uuid NOT NULL,
    execution_id     uuid NOT NULL,
    -- The asker's own name of the call: the JSON-RPC id at the gateway.
    call_id          text NOT NULL,
    invocation_id    uuid NOT NULL,
    session_id       uuid NOT NULL,
    authorization_id uuid,
    -- Who runs it; a row whose node is dead is closed by the reaper.
    node_id          uuid NOT NULL,
    state            text NOT NULL,
    -- From here on it may have run and is not repeated.
    sent_at          timestamptz,
    -- Stored but not closed: the reaper closes such a call as succeeded.
    raw_sha256       bytea,
    result_sha256    bytea,
    created_at       timestamptz NOT NULL,
    ended_at         timestamptz,

    PRIMARY KEY (tenant_id, execution_id, call_id),
    CONSTRAINT authorization_is_used_once UNIQUE (authorization_id, tenant_id),
    CONSTRAINT tool_call_state_known CHECK (state IN ('waiting', 'queued', 'running', 'ended')),
    CONSTRAINT tool_call_ended_with_time CHECK ((state = 'ended') = (ended_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX tool_calls_live ON tool_calls (node_id) WHERE ended_at IS NULL;
CREATE INDEX tool_calls_ended ON tool_calls (ended_at) WHERE ended_at IS NOT NULL;
CALL protect_tenant_table('tool_calls', 'SELECT, INSERT, UPDATE, DELETE');

-- The record of a call: inserted once, closed once. Partitioned by month on the time in its UUIDv7;
-- no foreign key points at it.
CREATE TABLE invocations (
    tenant_id        uuid NOT NULL,
    invocation_id    uuid NOT NULL,
    session_id       uuid NOT NULL,
    user_id          uuid NOT NULL,
    execution_id     uuid NOT NULL,
    call_id          text NOT NULL,
    token_id         uuid,
    run_id           uuid,
    origin           text NOT NULL,
    -- NULL where the asked name led to no tool.
    source_id        text,
    tool_id          text,
    asked_name       text NOT NULL,
    -- The catalog entry that the call was resolved to, compared at every send.
    entry            jsonb,
    -- Of {input, sourceId, toolId} in CAS.
    request_sha256   bytea NOT NULL,
    created_at       timestamptz NOT NULL,

    -- Closing columns: the app role may write them once, from NULL.
    status           text,
    error_code       text,
    error_message    text,
    retryable        boolean,
    queue_wait_ms    bigint,
    duration_ms      bigint,
    cache_hit        boolean,
    attempts         jsonb,
    warnings         jsonb,
    authorization_id uuid,
    raw_sha256       bytea,
    result_sha256    bytea,
    finished_at      timestamptz,

    PRIMARY KEY (tenant_id, invocation_id),
    CONSTRAINT invocation_origin_known CHECK (origin IN ('run', 'gateway', 'inspector')),
    CONSTRAINT invocation_status_known CHECK (status IN ('succeeded', 'failed', 'cancelled')),
    CONSTRAINT invocation_finished_iff_final CHECK ((status IS NULL) = (finished_at IS NULL)),
    CONSTRAINT invocation_error_iff_not_succeeded CHECK (
        status IS NULL OR (status = 'succeeded') = (error_code IS NULL))
) PARTITION BY RANGE (invocation_id);
CREATE INDEX invocations_session ON invocations (session_id, tenant_id, invocation_id DESC);
CALL protect_tenant_table('invocations', 'SELECT, INSERT');
GRANT UPDATE (status, error_code, error_message, retryable, queue_wait_ms, duration_ms, cache_hit, attempts,
              warnings, authorization_id, raw_sha256, result_sha256, finished_at)
    ON invocations TO bailiwick_app;
CREATE FUNCTION refuse_second_close() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'invocation % is closed', OLD.invocation_id USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER closed_once BEFORE UPDATE ON invocations
    FOR EACH ROW WHEN (OLD.status IS NOT NULL) EXECUTE FUNCTION refuse_second_close();
CREATE TRIGGER never_deleted BEFORE DELETE ON invocations
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Every allow and every deny, for ever. Partitioned like invocations.
CREATE TABLE permission_authorizations (
    tenant_id             uuid NOT NULL,
    authorization_id      uuid NOT NULL,
    session_id            uuid NOT NULL,
    user_id               uuid NOT NULL,
    action                text NOT NULL,
    resource              text NOT NULL,
    approval_mode         text NOT NULL,
    outcome               text NOT NULL,
    source                text NOT NULL,
    permission_epoch_id   uuid NOT NULL,
    permission_grant_id   uuid,
    permission_request_id uuid,
    execution_id          uuid,
    tool_call_id          text,
    definition_hash       bytea,
    input_digest          bytea,
    created_at            timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, authorization_id),
    CONSTRAINT authorization_outcome_known CHECK (outcome IN ('allowed', 'denied')),
    CONSTRAINT authorization_source_known CHECK (source IN (
        'always_allow', 'policy_allow', 'existing_grant', 'user_once', 'user_grant', 'user_deny', 'policy_deny', 'inspector')),
    CONSTRAINT authorization_outcome_fits_source CHECK (
        (outcome = 'denied') = (source IN ('user_deny', 'policy_deny')))
) PARTITION BY RANGE (authorization_id);
CREATE INDEX permission_authorizations_session
    ON permission_authorizations (session_id, tenant_id, authorization_id DESC);
CALL protect_tenant_table('permission_authorizations', 'SELECT, INSERT');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON permission_authorizations
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- One leaf for each closed call, authorization and audit event: ids and digests, never words.
CREATE TABLE audit_leaves (
    tenant_id  uuid NOT NULL,
    xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    kind       text NOT NULL,
    subject_id uuid NOT NULL,
    sha256     bytea NOT NULL,

    PRIMARY KEY (tenant_id, xid, seq),
    CONSTRAINT leaf_kind_known CHECK (kind IN ('invocation', 'authorization', 'event')),
    CONSTRAINT leaf_digest_is_sha256 CHECK (octet_length(sha256) = 32)
);
CALL protect_tenant_table('audit_leaves', 'SELECT, INSERT');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_leaves
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Changes of configuration, people, tokens, policies: who did what to which thing.
CREATE TABLE audit_events (
    tenant_id      uuid NOT NULL,
    audit_event_id uuid NOT NULL,
    -- NULL: the operator on the machine.
    actor_user_id  uuid,
    via            text NOT NULL,
    action         text NOT NULL,
    subject        text NOT NULL,
    -- Ids, codes and numbers only; no secret, no free words of a person.
    details        jsonb NOT NULL,
    created_at     timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, audit_event_id)
);
CALL protect_tenant_table('audit_events', 'SELECT, INSERT');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What happened in a session, for its owner's screens. Readers stop at pg_snapshot_xmin: whatever is
-- older than that is complete, so a replay has no gap and no duplicate.
CREATE TABLE events (
    tenant_id  uuid NOT NULL,
    session_id uuid NOT NULL,
    xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    type       text NOT NULL,
    data       jsonb NOT NULL,
    created_at timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, session_id, xid, seq)
);
CALL protect_tenant_table('events', 'SELECT, INSERT');

-- Partitions by month. A UUIDv7 begins with its time in milliseconds, so a month is a range of ids.
CREATE FUNCTION uuid_of_time(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid;

-- Makes the partitions of this month and `ahead` more; answers how many were new.
CREATE FUNCTION make_partitions(at timestamptz, ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    parent text;
    month timestamptz;
    partition text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('make_partitions'));
    FOREACH parent IN ARRAY ARRAY['invocations', 'permission_authorizations'] LOOP
        FOR step IN 0..least(greatest(ahead, 0), 24) LOOP
            month := date_trunc('month', at, 'UTC') + make_interval(months => step);
            partition := parent || '_' || to_char(month AT TIME ZONE 'UTC', 'YYYYMM');
            CONTINUE WHEN to_regclass('public.' || partition) IS NOT NULL;
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                partition, parent, uuid_of_time(month), uuid_of_time(month + interval '1 month'));
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

-- Drops partitions that end before `before`; answers their names. Called by retention alone.
CREATE FUNCTION drop_partitions(before timestamptz) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    partition text;
BEGIN
    FOR partition IN
        SELECT c.relname FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent IN ('invocations'::regclass, 'permission_authorizations'::regclass)
          AND c.relname ~ '_[0-9]{6}$'
          AND to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month' <= before
    LOOP
        EXECUTE format('DROP TABLE %I', partition);
        RETURN NEXT partition;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION drop_partitions FROM PUBLIC;

CREATE TABLE invocations_default PARTITION OF invocations DEFAULT;
CREATE TABLE permission_authorizations_default PARTITION OF permission_authorizations DEFAULT;
SELECT make_partitions(now(), 6);
