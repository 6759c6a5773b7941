-- Company sign-in: the issuer of a tenant, who people are there, and sign-ins under way.

CREATE TABLE company_issuers (
    tenant_id        uuid NOT NULL,
    -- Forms submit the one that they saw.
    revision         bigint NOT NULL,
    enabled          boolean NOT NULL,
    -- What the button says.
    name             text NOT NULL,
    issuer           text NOT NULL,
    client_id        text NOT NULL,
    -- The client secret; NULL: a public client.
    sealed           text,
    key_id           text,
    scopes           text[] NOT NULL,
    -- Where one issuer serves many companies: the claim, and the value that is this tenant's.
    tenant_claim     text,
    tenant_value     text,
    -- Whoever signs in for the first time becomes a person of the tenant.
    adds_people      boolean NOT NULL,
    -- The claim whose values give roles, and [[value, role], …].
    role_claim       text,
    roles            jsonb NOT NULL,
    -- Passwords are taken, too.
    local_sign_in    boolean NOT NULL,
    -- The gateway takes the issuer's access tokens, for these audiences besides its own address.
    gateway_tokens   boolean NOT NULL,
    gateway_audiences text[] NOT NULL,
    updated_at       timestamptz NOT NULL,

    PRIMARY KEY (tenant_id),
    FOREIGN KEY (tenant_id) REFERENCES tenants,
    CONSTRAINT company_issuer_secret_whole CHECK ((sealed IS NULL) = (key_id IS NULL)),
    CONSTRAINT company_issuer_tenant_whole CHECK ((tenant_claim IS NULL) = (tenant_value IS NULL)),
    -- Nobody is locked out by a switch.
    CONSTRAINT company_issuer_or_passwords CHECK (local_sign_in OR enabled)
);
CREATE INDEX company_issuers_issuer ON company_issuers (issuer) WHERE gateway_tokens AND enabled;
CALL protect_tenant_table('company_issuers', 'SELECT, INSERT, UPDATE, DELETE');

-- Who a person is at an issuer. (issuer, subject) is the key; an address joins nobody.
CREATE TABLE company_accounts (
    tenant_id     uuid NOT NULL,
    issuer        text NOT NULL,
    subject       text NOT NULL,
    user_id       uuid NOT NULL,
    created_at    timestamptz NOT NULL,
    signed_in_at  timestamptz,

    PRIMARY KEY (tenant_id, issuer, subject),
    FOREIGN KEY (tenant_id, user_id) REFERENCES users,
    CONSTRAINT company_accounts_user_key UNIQUE (user_id, issuer, tenant_id)
);
CALL protect_tenant_table('company_accounts', 'SELECT, INSERT, UPDATE, DELETE');

-- From the click to the answer of the issuer. A row is taken up once.
CREATE TABLE company_sign_ins (
    tenant_id      uuid NOT NULL,
    sign_in_id     uuid NOT NULL,
    state_digest   bytea NOT NULL,
    browser_digest bytea NOT NULL,
    -- SHA-256 of where it was begun from.
    network_digest bytea NOT NULL,
    -- Of the issuer's settings.
    revision       bigint NOT NULL,
    -- NULL: whoever comes back. Otherwise this person links their account.
    user_id        uuid,
    sealed         text NOT NULL,
    key_id         text NOT NULL,
    created_at     timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, sign_in_id),
    FOREIGN KEY (tenant_id) REFERENCES company_issuers ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, user_id) REFERENCES users,
    CONSTRAINT company_sign_ins_state_key UNIQUE (state_digest),
    CONSTRAINT company_sign_in_digests_are_sha256
        CHECK (octet_length(state_digest) = 32 AND octet_length(browser_digest) = 32
               AND octet_length(network_digest) = 32)
);
CREATE INDEX company_sign_ins_network ON company_sign_ins (network_digest, tenant_id);
CREATE INDEX company_sign_ins_expires ON company_sign_ins (expires_at);
CALL protect_tenant_table('company_sign_ins', 'SELECT, INSERT, UPDATE, DELETE');

-- Across tenants, for whoever clears up.
CREATE FUNCTION due_company_sign_ins(ended_before timestamptz, most integer)
RETURNS TABLE (tenant_id uuid, sign_in_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT s.tenant_id, s.sign_in_id FROM company_sign_ins s
    WHERE s.expires_at < ended_before ORDER BY s.expires_at LIMIT most
$$;

-- The tenants whose gateway takes a token of this issuer with these claims, which nobody has verified yet:
-- found before any tenant is known. More than one: the issuer was set up for several and not told apart.
CREATE FUNCTION find_company_issuer(p_issuer text, p_claims jsonb)
RETURNS TABLE (tenant_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.tenant_id FROM company_issuers c
    WHERE c.issuer = p_issuer AND c.gateway_tokens AND c.enabled
      AND (c.tenant_claim IS NULL OR p_claims -> c.tenant_claim = to_jsonb(c.tenant_value))
    LIMIT 2
$$;

-- Whether a tenant's own people can be told from those of every other tenant whose gateway takes tokens of
-- that issuer: by the same claim, with another value. Two tenants that save at once go one after the other.
CREATE FUNCTION company_issuer_is_distinct(p_tenant uuid, p_issuer text, p_claim text, p_value text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('company issuer ' || p_issuer, 0));
    RETURN NOT EXISTS (
        SELECT FROM company_issuers c
        WHERE c.issuer = p_issuer AND c.gateway_tokens AND c.enabled AND c.tenant_id <> p_tenant
          AND (c.tenant_claim IS DISTINCT FROM p_claim OR c.tenant_claim IS NULL
               OR c.tenant_value = p_value));
END $$;

-- Sessions of whichever tenant, for the function below.
CREATE INDEX sessions_id ON sessions (session_id);

-- The issuers whose tokens an endpoint of the gateway takes: that of the session's tenant; without a
-- session, of the only tenant.
CREATE FUNCTION find_gateway_issuer(p_session uuid)
RETURNS TABLE (issuer text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.issuer FROM company_issuers c
    WHERE c.gateway_tokens AND c.enabled AND c.tenant_id = CASE
        WHEN p_session IS NOT NULL THEN (SELECT s.tenant_id FROM sessions s WHERE s.session_id = p_session)
        ELSE (SELECT t.tenant_id FROM tenants t WHERE (SELECT count(*) FROM (SELECT FROM tenants LIMIT 2) few) = 1)
    END
$$;
