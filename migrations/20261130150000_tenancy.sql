-- Tenants, people and their tokens; and the walls between tenants.
--
-- Two roles exist before this runs (`bailiwick migrate` makes them): `bailiwick_owner` migrates and owns
-- everything, `bailiwick_app` serves. Every tenant table goes through `protect_tenant_table`.

-- The tenant of this transaction. An unset one is '' after the first SET LOCAL of a pooled
-- connection, and a bare cast of that raises.
CREATE FUNCTION current_tenant() RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('app.tenant_id', true), '')::uuid;

-- Row-level security for a tenant table: the app role sees its transaction's tenant only; the owner,
-- who migrates and never serves, sees all. `app_grants` is what the app role may do.
CREATE PROCEDURE protect_tenant_table(tenant_table regclass, app_grants text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', tenant_table);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', tenant_table);
    EXECUTE format(
        'CREATE POLICY tenant_rows ON %s TO bailiwick_app
             USING (tenant_id = current_tenant()) WITH CHECK (tenant_id = current_tenant())',
        tenant_table);
    EXECUTE format(
        'CREATE POLICY owner_rows ON %s TO bailiwick_owner USING (true) WITH CHECK (true)',
        tenant_table);
    EXECUTE format('GRANT %s ON %s TO bailiwick_app', app_grants, tenant_table);
END $$;

-- Order of columns in keys: the primary key of a tenant table begins with tenant_id; every other index
-- begins with what tells rows apart. On an empty table all indexes cost the same, and one that
-- begins with tenant_id would be taken for a look-up by primary key: it reads the whole tenant.

-- Refuses whatever it is a trigger for: append-only tables say so a second time here, should a
-- grant ever be too wide.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TABLE tenants (
    tenant_id              uuid PRIMARY KEY,
    -- In URLs: /t/{slug}/…
    slug                   text NOT NULL,
    -- Servers used in all sessions that name no selection of their own.
    enabled_source_ids     text[] NOT NULL DEFAULT '{}',
    auto_approve_new_tools boolean NOT NULL DEFAULT false,
    created_at             timestamptz NOT NULL,

    CONSTRAINT tenants_slug_key UNIQUE (slug),
    CONSTRAINT tenant_slug_is_a_label CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$')
);
GRANT SELECT, INSERT, UPDATE ON tenants TO bailiwick_app;

CREATE TABLE users (
    tenant_id     uuid NOT NULL REFERENCES tenants,
    user_id       uuid NOT NULL,
    email         text NOT NULL,
    role          text NOT NULL,
    status        text NOT NULL DEFAULT 'active',
    -- PHC string (argon2id); NULL: no local sign-in.
    password_hash text,
    created_at    timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, user_id),
    CONSTRAINT user_role_known CHECK (role IN ('member', 'admin', 'superadmin')),
    CONSTRAINT user_status_known CHECK (status IN ('active', 'disabled'))
);
CREATE UNIQUE INDEX users_email_key ON users (lower(email), tenant_id);
CALL protect_tenant_table('users', 'SELECT, INSERT, UPDATE');

CREATE TABLE api_tokens (
    tenant_id    uuid NOT NULL,
    token_id     uuid NOT NULL,
    user_id      uuid NOT NULL,
    name         text NOT NULL,
    -- SHA-256 of the token; the token itself is shown once and kept nowhere.
    digest       bytea NOT NULL,
    scopes       text[] NOT NULL,
    -- NULL: not limited.
    sources      text[],
    tools        text[],
    session_ids  uuid[],
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    revoked_at   timestamptz,

    PRIMARY KEY (tenant_id, token_id),
    FOREIGN KEY (tenant_id, user_id) REFERENCES users,
    CONSTRAINT api_tokens_digest_key UNIQUE (digest),
    CONSTRAINT token_digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT token_scopes_known CHECK (
        cardinality(scopes) > 0 AND scopes <@ ARRAY['mcp:call', 'api:read', 'api:write', 'approve', 'admin']),
    CONSTRAINT caller_may_not_approve CHECK (NOT scopes @> ARRAY['mcp:call', 'approve'])
);
CREATE INDEX api_tokens_user ON api_tokens (user_id, tenant_id);
CALL protect_tenant_table('api_tokens', 'SELECT, INSERT, UPDATE');

-- The tenant is found before it is known only by functions like these; each gives (tenant, id) away
-- and nothing else.
CREATE FUNCTION find_api_token(token_digest bytea)
RETURNS TABLE (tenant_id uuid, token_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
AS $$ SELECT t.tenant_id, t.token_id FROM api_tokens t WHERE t.digest = token_digest $$;

-- Who holds this token, with what it may do; nothing for a token that is unknown, revoked, expired
-- or owned by a disabled person. One statement, so that it is one round trip.
CREATE FUNCTION caller_by_token(token_digest bytea, at timestamptz)
RETURNS TABLE (
    tenant_id uuid, token_id uuid, user_id uuid, role text, scopes text[],
    sources text[], tools text[], session_ids uuid[])
LANGUAGE plpgsql AS $$
DECLARE
    found_tenant uuid;
    found_token uuid;
BEGIN
    SELECT f.tenant_id, f.token_id INTO found_tenant, found_token FROM find_api_token(token_digest) f;
    IF found_token IS NULL THEN
        RETURN;
    END IF;
    PERFORM set_config('app.tenant_id', found_tenant::text, true);
    RETURN QUERY
        SELECT t.tenant_id, t.token_id, t.user_id, u.role, t.scopes, t.sources, t.tools, t.session_ids
        FROM api_tokens t JOIN users u ON u.tenant_id = t.tenant_id AND u.user_id = t.user_id
        WHERE t.tenant_id = found_tenant AND t.token_id = found_token
          AND t.revoked_at IS NULL AND t.expires_at > at AND u.status = 'active';
END $$;
