-- Sign-in of people: their browser sessions, and how soon somebody may try again.

CREATE TABLE web_sessions (
    tenant_id      uuid NOT NULL,
    web_session_id uuid NOT NULL,
    user_id        uuid NOT NULL,
    -- SHA-256 of the cookie's value, which is kept nowhere.
    digest         bytea NOT NULL,
    created_at     timestamptz NOT NULL,
    -- Not of each request: written at most once a minute.
    last_used_at   timestamptz NOT NULL,
    -- However often it is used.
    expires_at     timestamptz NOT NULL,
    revoked_at     timestamptz,

    PRIMARY KEY (tenant_id, web_session_id),
    FOREIGN KEY (tenant_id, user_id) REFERENCES users,
    CONSTRAINT web_sessions_digest_key UNIQUE (digest),
    CONSTRAINT web_session_digest_is_sha256 CHECK (octet_length(digest) = 32)
);
CREATE INDEX web_sessions_user ON web_sessions (user_id, tenant_id);
CREATE INDEX web_sessions_expires ON web_sessions (expires_at);
CALL protect_tenant_table('web_sessions', 'SELECT, INSERT, UPDATE, DELETE');

CREATE FUNCTION find_web_session(cookie_digest bytea)
RETURNS TABLE (tenant_id uuid, web_session_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
AS $$ SELECT w.tenant_id, w.web_session_id FROM web_sessions w WHERE w.digest = cookie_digest $$;

-- Whose session this is, and notes its use; nothing for one that is unknown, revoked, at its end, idle
-- for too long, or of a disabled person. One statement, so that it is one round trip.
CREATE FUNCTION caller_by_web_session(cookie_digest bytea, at timestamptz, idle_ms bigint, touch_ms bigint)
RETURNS TABLE (tenant_id uuid, web_session_id uuid, user_id uuid, role text)
LANGUAGE plpgsql AS $$
DECLARE
    found_tenant uuid;
    found_session uuid;
BEGIN
    SELECT f.tenant_id, f.web_session_id INTO found_tenant, found_session
    FROM find_web_session(cookie_digest) f;
    IF found_session IS NULL THEN
        RETURN;
    END IF;
    PERFORM set_config('app.tenant_id', found_tenant::text, true);
    RETURN QUERY
        SELECT w.tenant_id, w.web_session_id, w.user_id, u.role
        FROM web_sessions w JOIN users u ON u.tenant_id = w.tenant_id AND u.user_id = w.user_id
        WHERE w.tenant_id = found_tenant AND w.web_session_id = found_session
          AND w.revoked_at IS NULL AND w.expires_at > at
          AND w.last_used_at > at - idle_ms * interval '1 millisecond' AND u.status = 'active';
    IF FOUND THEN
        UPDATE web_sessions w SET last_used_at = at
        WHERE w.tenant_id = found_tenant AND w.web_session_id = found_session
          AND w.last_used_at <= at - touch_ms * interval '1 millisecond';
    END IF;
END $$;

-- Across tenants, for whoever clears up.
CREATE FUNCTION due_web_sessions(ended_before timestamptz, most integer)
RETURNS TABLE (tenant_id uuid, web_session_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT w.tenant_id, w.web_session_id FROM web_sessions w
    WHERE w.expires_at < ended_before ORDER BY w.expires_at LIMIT most
$$;

CREATE FUNCTION find_sign_in(p_tenant text, p_email text)
RETURNS TABLE (tenant_id uuid, user_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT u.tenant_id, u.user_id FROM tenants t JOIN users u ON u.tenant_id = t.tenant_id
    WHERE t.slug = p_tenant AND lower(u.email) = lower(p_email)
$$;

-- Who would sign in there with that address, with the hash of their password.
CREATE FUNCTION person_by_sign_in(p_tenant text, p_email text)
RETURNS TABLE (tenant_id uuid, user_id uuid, status text, password_hash text)
LANGUAGE plpgsql AS $$
DECLARE
    found_tenant uuid;
    found_user uuid;
BEGIN
    SELECT f.tenant_id, f.user_id INTO found_tenant, found_user FROM find_sign_in(p_tenant, p_email) f;
    IF found_user IS NULL THEN
        RETURN;
    END IF;
    PERFORM set_config('app.tenant_id', found_tenant::text, true);
    RETURN QUERY
        SELECT u.tenant_id, u.user_id, u.status, u.password_hash FROM users u
        WHERE u.tenant_id = found_tenant AND u.user_id = found_user;
END $$;

-- How often somebody tried in vain, by account, by network, and by both together. Global: an account
-- that does not exist is counted like one that does, and a network tries at many tenants.
CREATE TABLE sign_in_throttles (
    -- SHA-256: neither an address nor a name stands here.
    subject    bytea PRIMARY KEY,
    -- account, network; known: an account at a network from which it signed in before. Rows are locked
    -- in the order of these words.
    kind       text NOT NULL,
    failures   integer NOT NULL,
    tried_at   timestamptz NOT NULL,
    -- No attempt before.
    free_at    timestamptz NOT NULL,
    -- As good as gone from then on.
    expires_at timestamptz NOT NULL,

    CONSTRAINT sign_in_throttle_kind_known CHECK (kind IN ('account', 'known', 'network')),
    CONSTRAINT sign_in_throttle_subject_is_sha256 CHECK (octet_length(subject) = 32)
);
CREATE INDEX sign_in_throttles_expires ON sign_in_throttles (expires_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON sign_in_throttles TO bailiwick_app;

-- How long after its attempt number `attempts` a subject must wait: doubling from `first_ms`, up to
-- `most_ms`, once `free` attempts were made.
CREATE FUNCTION sign_in_delay(attempts integer, free integer, first_ms bigint, most_ms bigint)
RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN attempts < free THEN interval '0'
    ELSE least(most_ms, first_ms * 2 ^ least(attempts - free, 40)) * interval '1 millisecond' END;

-- Takes a turn to try a password: counted as in vain until `settle_sign_in` says otherwise, so that of
-- many attempts at the same moment no more get through than one after the other would. Comes back with
-- the time before which there is no turn, or with NULL: it is taken. An attempt that got no turn
-- counts for nothing, so that nobody can prolong anybody's wait by hammering.
CREATE FUNCTION take_sign_in_turn(
    p_account bytea, p_known bytea, p_network bytea, at timestamptz, forget_ms bigint, first_ms bigint,
    account_free integer, account_most_ms bigint, network_free integer, network_most_ms bigint)
RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    subjects bytea[] := ARRAY[p_account, p_network];
    kinds    text[] := ARRAY['account', 'network'];
    forget   interval := forget_ms * interval '1 millisecond';
    free     timestamptz;
BEGIN
    -- Whoever signed in from here before is judged by what came from here, so that strangers elsewhere
    -- cannot keep them out.
    IF EXISTS (SELECT FROM sign_in_throttles t WHERE t.subject = p_known AND t.expires_at > at) THEN
        subjects := ARRAY[p_known];
        kinds := ARRAY['known'];
    END IF;
    -- An attempt that has no turn leaves no row either.
    SELECT max(t.free_at) INTO free FROM sign_in_throttles t WHERE t.subject = ANY(subjects);
    IF free > at THEN
        RETURN free;
    END IF;
    INSERT INTO sign_in_throttles (subject, kind, failures, tried_at, free_at, expires_at)
    SELECT s.subject, s.kind, 0, at, at, at + forget
    FROM unnest(subjects, kinds) WITH ORDINALITY AS s (subject, kind, place) ORDER BY s.place
    ON CONFLICT DO NOTHING;
    SELECT max(l.free_at) INTO free FROM (
        SELECT t.free_at FROM sign_in_throttles t WHERE t.subject = ANY(subjects)
        ORDER BY t.kind FOR UPDATE) l;
    IF free > at THEN
        RETURN free;
    END IF;
    UPDATE sign_in_throttles t
    SET failures = n.attempts, tried_at = at,
        free_at = at + CASE t.kind
            WHEN 'network' THEN sign_in_delay(n.attempts, network_free, first_ms, network_most_ms)
            ELSE sign_in_delay(n.attempts, account_free, first_ms, account_most_ms) END,
        expires_at = greatest(t.expires_at, at + forget)
    FROM (SELECT o.subject, CASE WHEN o.tried_at < at - forget THEN 1 ELSE o.failures + 1 END AS attempts
          FROM sign_in_throttles o WHERE o.subject = ANY(subjects)) n
    WHERE t.subject = n.subject;
    RETURN NULL;
END $$;

-- The turn was not in vain: it is forgiven, and from here on this account is known at this network.
CREATE FUNCTION settle_sign_in(
    p_account bytea, p_known bytea, p_network bytea, at timestamptz, known_ms bigint)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    known boolean := EXISTS (
        SELECT FROM sign_in_throttles t WHERE t.subject = p_known AND t.expires_at > at);
BEGIN
    IF NOT known THEN
        DELETE FROM sign_in_throttles t WHERE t.subject = p_account;
    END IF;
    INSERT INTO sign_in_throttles AS t (subject, kind, failures, tried_at, free_at, expires_at)
    VALUES (p_known, 'known', 0, at, at, at + known_ms * interval '1 millisecond')
    ON CONFLICT (subject) DO UPDATE
    SET failures = 0, free_at = excluded.free_at, expires_at = excluded.expires_at;
    IF NOT known THEN
        -- This one turn alone: who has an account could else try all the others by it.
        UPDATE sign_in_throttles t SET failures = t.failures - 1, free_at = least(t.free_at, at)
        WHERE t.subject = p_network AND t.failures > 0;
    END IF;
END $$;
