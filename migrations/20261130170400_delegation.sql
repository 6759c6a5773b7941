-- Delegation tokens that were used: each is good for one request, on whatever node it comes in. A row
-- tells nothing but that. It is needed as long as the token is valid, and goes soon after.

CREATE TABLE spent_delegation_tokens (
    jti        uuid PRIMARY KEY,
    expires_at timestamptz NOT NULL
);
CREATE INDEX spent_delegation_tokens_expires_at ON spent_delegation_tokens (expires_at);
GRANT SELECT, INSERT, DELETE ON spent_delegation_tokens TO bailiwick_app;

-- Spends a token whose signature was checked, and tells who its person is now: nothing where it was
-- spent before, or the person may no longer ask. One statement, so that it is one round trip.
--
-- The commit does not wait for the disk (docs/decisions/0017-delegation.md): a crash of PostgreSQL may
-- forget what was spent in its last moments.
CREATE FUNCTION spend_delegation_token(
    p_jti uuid, p_expires_at timestamptz, p_tenant uuid, p_user uuid)
RETURNS TABLE (email text, role text, tenant_slug text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant::text, true);
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO spent_delegation_tokens (jti, expires_at) VALUES (p_jti, p_expires_at)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT u.email, u.role, t.slug
        FROM users u JOIN tenants t ON t.tenant_id = u.tenant_id
        WHERE u.tenant_id = p_tenant AND u.user_id = p_user AND u.status = 'active';
END $$;
