-- Personal connections: who is connected to which server, with what; how a connection is being made.

-- One row for each (server, person) that ever connected, or was told to: it survives disconnecting, so
-- that its generation only grows.
CREATE TABLE mcp_connections (
    tenant_id     uuid NOT NULL,
    server_id     text NOT NULL,
    user_id       uuid NOT NULL,
    -- Of the grant: grows whenever a credential is put in, or taken out, by whoever.
    generation    bigint NOT NULL,
    -- Of the credential within its generation: grows when it is refreshed.
    version       bigint NOT NULL,
    state         text NOT NULL,
    -- Why it is to be connected anew.
    reason        text,
    kind          text,
    -- The credential. NULL but for `connected`.
    sealed        text,
    key_id        text,
    -- The person's account at the provider, as far as it told.
    account       text,
    issuer        text,
    -- What was granted, as far as the provider told, together with what was asked for.
    scopes        text[] NOT NULL DEFAULT '{}',
    -- What the server asked for besides: the next start asks for it.
    needs_scopes  text[] NOT NULL DEFAULT '{}',
    -- NULL: unknown.
    expires_at    timestamptz,
    -- When it is to be refreshed before its use; not after expires_at.
    refresh_at    timestamptz,
    -- Who refreshes it now, and until when nobody else does.
    refresh_by    uuid,
    refresh_until timestamptz,
    connected_at  timestamptz,
    last_used_at  timestamptz,
    updated_at    timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, server_id, user_id),
    FOREIGN KEY (tenant_id, server_id) REFERENCES mcp_servers ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, user_id) REFERENCES users,
    CONSTRAINT connection_state_known CHECK (state IN ('disconnected', 'connected', 'reconnect_required')),
    CONSTRAINT connection_kind_known CHECK (kind IN ('bearer', 'api_key', 'oauth')),
    CONSTRAINT connected_has_its_credential CHECK (
        (state = 'connected') = (sealed IS NOT NULL) AND (sealed IS NULL) = (key_id IS NULL)
        AND (state <> 'connected' OR kind IS NOT NULL)),
    CONSTRAINT reason_of_reconnecting CHECK ((state = 'reconnect_required') = (reason IS NOT NULL))
);
CREATE INDEX mcp_connections_user ON mcp_connections (user_id, tenant_id);
CREATE INDEX mcp_connections_key ON mcp_connections (key_id) WHERE key_id IS NOT NULL;
CALL protect_tenant_table('mcp_connections', 'SELECT, INSERT, UPDATE, DELETE');

-- One try to connect by OAuth. Bound to person, browser, configuration and generation.
CREATE TABLE mcp_oauth_attempts (
    tenant_id         uuid NOT NULL,
    attempt_id        uuid NOT NULL,
    server_id         text NOT NULL,
    user_id           uuid NOT NULL,
    -- SHA-256 of `state`, and of the cookie of the browser that began.
    state_digest      bytea NOT NULL,
    browser_digest    bytea NOT NULL,
    config_revision   bigint NOT NULL,
    generation        bigint NOT NULL,
    -- As which client: where nobody ever comes back, our registration may be what is wrong.
    issuer            text NOT NULL,
    callback          text NOT NULL,
    status            text NOT NULL,
    -- Verifier, issuer, endpoints, client; once finished the credential that is to be confirmed.
    sealed            text,
    key_id            text,
    -- SHA-256 of what the person confirms with.
    result_digest     bytea,
    created_at        timestamptz NOT NULL,
    -- Of the attempt, then of its result.
    expires_at        timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, attempt_id),
    FOREIGN KEY (tenant_id, server_id) REFERENCES mcp_servers ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, user_id) REFERENCES users,
    CONSTRAINT mcp_oauth_attempts_state_key UNIQUE (state_digest),
    CONSTRAINT mcp_oauth_attempts_result_key UNIQUE (result_digest),
    -- started: the browser is at the provider. claimed: its callback is being worked on. finished: the
    -- person has to confirm. The rest is over.
    CONSTRAINT attempt_status_known CHECK (status IN ('started', 'claimed', 'finished', 'void')),
    CONSTRAINT attempt_digests_are_sha256 CHECK (
        octet_length(state_digest) = 32 AND octet_length(browser_digest) = 32
        AND octet_length(result_digest) = 32),
    CONSTRAINT finished_attempt_has_its_result CHECK (
        (status = 'finished') <= (sealed IS NOT NULL AND result_digest IS NOT NULL)),
    CONSTRAINT void_attempt_holds_nothing CHECK (status <> 'void' OR sealed IS NULL)
);
CREATE INDEX mcp_oauth_attempts_person ON mcp_oauth_attempts (user_id, server_id, tenant_id);
CREATE INDEX mcp_oauth_attempts_due ON mcp_oauth_attempts (expires_at);
CALL protect_tenant_table('mcp_oauth_attempts', 'SELECT, INSERT, UPDATE, DELETE');

-- What we are registered as at an authorization server, for one redirect URI.
CREATE TABLE mcp_oauth_clients (
    tenant_id    uuid NOT NULL REFERENCES tenants,
    issuer       text NOT NULL,
    redirect_uri text NOT NULL,
    sealed       text NOT NULL,
    key_id       text NOT NULL,
    created_at   timestamptz NOT NULL,
    -- Of its secret. NULL: never, or unknown.
    expires_at   timestamptz,

    PRIMARY KEY (tenant_id, issuer, redirect_uri)
);
CALL protect_tenant_table('mcp_oauth_clients', 'SELECT, INSERT, UPDATE, DELETE');

-- The callback comes without a session: the attempt says whose it is.
CREATE FUNCTION find_oauth_attempt(p_state_digest bytea)
RETURNS TABLE (tenant_id uuid, attempt_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
AS $$ SELECT a.tenant_id, a.attempt_id FROM mcp_oauth_attempts a WHERE a.state_digest = p_state_digest $$;

-- Tenants that have attempts to be cleaned up.
CREATE FUNCTION due_oauth_attempts(p_at timestamptz, p_most integer)
RETURNS TABLE (tenant_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
AS $$ SELECT DISTINCT d.tenant_id FROM (
          SELECT a.tenant_id FROM mcp_oauth_attempts a WHERE a.expires_at <= p_at
          ORDER BY a.expires_at LIMIT p_most) d $$;

-- How far the person is connected, joined to call_context. Always one row where there is a server.
CREATE FUNCTION own_connection(p_tenant uuid, p_user uuid, p_server text)
RETURNS TABLE (
    connection_generation bigint, connection_state text, connection_reason text, api_key_header text)
LANGUAGE plpgsql ROWS 1 AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    RETURN QUERY
        SELECT c.generation, c.state, c.reason, v.api_key_header
        FROM mcp_servers v
        LEFT JOIN mcp_connections c
            ON c.tenant_id = v.tenant_id AND c.server_id = v.server_id AND c.user_id = p_user
        WHERE v.tenant_id = p_tenant AND v.server_id = p_server;
END $$;

-- Joined laterally, three functions of which the planner expects a thousand rows each would be expected
-- to give a thousand million: a statement that costs so much is compiled before it runs.
ALTER FUNCTION call_context(uuid, uuid, uuid, text, text, text, text[]) ROWS 1;
ALTER FUNCTION server_values(uuid, text) ROWS 1;

-- All that decides whether one request may leave, and with which credential. Always one row.
CREATE FUNCTION outbound_read_back(
    p_tenant uuid, p_user uuid, p_token uuid, p_server text, p_tool text, p_at timestamptz)
RETURNS TABLE (
    user_active boolean, server_enabled boolean, config_revision bigint, auth_mode text,
    tool_present boolean, tool_enabled boolean, tool_denied boolean, tool_approved boolean,
    definition_hash bytea,
    generation bigint, version bigint, state text, reason text, sealed text, key_id text,
    refresh_at timestamptz, expires_at timestamptz, last_used_at timestamptz)
LANGUAGE plpgsql ROWS 1 AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    RETURN QUERY
        SELECT r.*, c.generation, c.version, c.state, c.reason, c.sealed, c.key_id, c.refresh_at,
               c.expires_at, c.last_used_at
        FROM read_back(p_tenant, p_user, p_token, p_server, p_tool, p_at) r
        LEFT JOIN mcp_connections c
            ON c.tenant_id = p_tenant AND c.server_id = p_server AND c.user_id = p_user;
END $$;
