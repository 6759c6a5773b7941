-- Tokens of a company's issuer are in no table of ours: whoever calls with them has one default session at
-- the gateway for all of them.

ALTER TABLE sessions ADD COLUMN company_default boolean NOT NULL DEFAULT false;
ALTER TABLE sessions ADD CONSTRAINT session_default_of_one
    CHECK (NOT (company_default AND gateway_token_id IS NOT NULL));

-- One living default session per person; archiving it makes room for the next.
CREATE UNIQUE INDEX sessions_company_default_key ON sessions (owner_user_id, tenant_id)
    WHERE archived_at IS NULL AND company_default;
