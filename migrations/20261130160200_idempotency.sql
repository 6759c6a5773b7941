-- What a client asked to be done once, and the answer that it gets again (docs/decisions/0010).

CREATE TABLE idempotency_keys (
    tenant_id          uuid NOT NULL,
    idempotency_key_id uuid NOT NULL,
    -- The credential that asked: an answer is repeated to whom it was given, and to nobody else.
    caller_id          uuid NOT NULL,
    user_id            uuid NOT NULL,
    -- The key itself is not kept: with it in hand, whoever reads the table could guess at what a body
    -- holds (a password, say) until its digest fits.
    key_digest         bytea NOT NULL,
    body_digest        bytea NOT NULL,
    method             text NOT NULL,
    -- With its query.
    path               text NOT NULL,
    -- running: nothing was changed yet; changed: something was, and its answer is not here;
    -- done: the request is over.
    state              text NOT NULL DEFAULT 'running',
    -- Who holds an earlier epoch has lost the key and can save nothing.
    epoch              bigint NOT NULL DEFAULT 1,
    -- Renewed while the request runs. NULL: it runs no longer.
    claimed_until      timestamptz,
    -- Of a request that is done; NULL where its answer is not kept.
    answer_status      smallint,
    answer_type        text,
    answer_body        bytea,
    created_at         timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, idempotency_key_id),
    FOREIGN KEY (tenant_id, user_id) REFERENCES users,
    CONSTRAINT idempotency_keys_key UNIQUE (key_digest, caller_id, tenant_id),
    CONSTRAINT idempotency_digests_are_sha256 CHECK (octet_length(key_digest) = 32 AND octet_length(body_digest) = 32),
    CONSTRAINT idempotency_state_known CHECK (state IN ('running', 'changed', 'done')),
    CONSTRAINT only_done_has_an_answer CHECK (state = 'done' OR answer_status IS NULL),
    CONSTRAINT an_answer_is_whole CHECK ((answer_status IS NULL) = (answer_body IS NULL))
);
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);
CALL protect_tenant_table('idempotency_keys', 'SELECT, INSERT, UPDATE, DELETE');

CREATE FUNCTION due_idempotency_keys(created_before timestamptz, most integer)
RETURNS TABLE (tenant_id uuid, idempotency_key_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT k.tenant_id, k.idempotency_key_id FROM idempotency_keys k
    WHERE k.created_at < created_before ORDER BY k.created_at LIMIT most
$$;
