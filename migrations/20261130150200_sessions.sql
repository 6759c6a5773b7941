-- Projects, sessions and what a session may do: epochs, questions, grants.

CREATE TABLE projects (
    tenant_id          uuid NOT NULL,
    project_id         uuid NOT NULL,
    owner_user_id      uuid NOT NULL,
    title              text NOT NULL,
    -- NULL inherits the tenant's.
    enabled_source_ids text[],
    created_at         timestamptz NOT NULL,
    archived_at        timestamptz,

    PRIMARY KEY (tenant_id, project_id),
    FOREIGN KEY (tenant_id, owner_user_id) REFERENCES users
);
CREATE INDEX projects_owner ON projects (owner_user_id, tenant_id, project_id DESC);
CALL protect_tenant_table('projects', 'SELECT, INSERT, UPDATE');

CREATE TABLE sessions (
    tenant_id           uuid NOT NULL,
    session_id          uuid NOT NULL,
    owner_user_id       uuid NOT NULL,
    project_id          uuid,
    title               text NOT NULL,
    approval_mode       text NOT NULL DEFAULT 'ask_for_dangerous',
    -- NULL inherits the project's, else the tenant's.
    enabled_source_ids  text[],
    -- The state of permissions that a decision binds to.
    permission_epoch_id uuid NOT NULL,
    -- The default session of one token at the gateway.
    gateway_token_id    uuid,
    created_at          timestamptz NOT NULL,
    archived_at         timestamptz,

    PRIMARY KEY (tenant_id, session_id),
    FOREIGN KEY (tenant_id, owner_user_id) REFERENCES users,
    FOREIGN KEY (tenant_id, project_id) REFERENCES projects,
    FOREIGN KEY (tenant_id, gateway_token_id) REFERENCES api_tokens,
    CONSTRAINT session_mode_known CHECK (approval_mode IN ('ask_for_dangerous', 'always_allow', 'never_ask'))
);
CREATE INDEX sessions_owner ON sessions (owner_user_id, tenant_id, session_id DESC);
-- One living default session per token; archiving it makes room for the next.
CREATE UNIQUE INDEX sessions_gateway_token_key ON sessions (gateway_token_id, tenant_id)
    WHERE archived_at IS NULL AND gateway_token_id IS NOT NULL;
CALL protect_tenant_table('sessions', 'SELECT, INSERT, UPDATE');

CREATE TABLE permission_epochs (
    tenant_id           uuid NOT NULL,
    permission_epoch_id uuid NOT NULL,
    session_id          uuid NOT NULL,
    reason              text NOT NULL,
    created_at          timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, permission_epoch_id),
    CONSTRAINT epoch_reason_known CHECK (
        reason IN ('session_created', 'decision', 'mode_changed', 'grant_revoked', 'rotated'))
);
CREATE INDEX permission_epochs_session ON permission_epochs (session_id, tenant_id, permission_epoch_id DESC);
CALL protect_tenant_table('permission_epochs', 'SELECT, INSERT');
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON permission_epochs
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TABLE permission_requests (
    tenant_id             uuid NOT NULL,
    permission_request_id uuid NOT NULL,
    session_id            uuid NOT NULL,
    user_id               uuid NOT NULL,
    -- Who waits for the answer; its end cancels the question.
    owner_kind            text NOT NULL,
    execution_id          uuid NOT NULL,
    tool_call_id          text NOT NULL,
    -- A gateway question may be taken over by the same token's identical call.
    token_id              uuid,
    node_id               uuid,
    action                text NOT NULL,
    resource              text NOT NULL,
    resource_class        text NOT NULL,
    words                 text NOT NULL,
    example               text NOT NULL,
    server_id             text,
    tool_id               text,
    definition_hash       bytea,
    -- Of the canonical input: an approval is bound to the exact call.
    input_digest          bytea NOT NULL,
    -- Bounded; what the card shows.
    input_shown           text NOT NULL,
    state                 text NOT NULL DEFAULT 'pending',
    -- Filled when decided: what the waiting call will use, once.
    authorization_id      uuid,
    authorization_source  text,
    -- Nobody holds the line; an identical call may take the question over until it expires.
    detached_at           timestamptz,
    -- A detached question that was answered and taken over is spent.
    used_at               timestamptz,
    expires_at            timestamptz,
    created_at            timestamptz NOT NULL,
    resolved_at           timestamptz,

    PRIMARY KEY (tenant_id, permission_request_id),
    FOREIGN KEY (tenant_id, session_id) REFERENCES sessions,
    CONSTRAINT request_state_known CHECK (state IN ('pending', 'allowed', 'denied', 'cancelled')),
    CONSTRAINT request_owner_known CHECK (owner_kind IN ('run', 'inspector', 'gateway', 'plan', 'host')),
    CONSTRAINT request_resolved_iff_not_pending CHECK ((state = 'pending') = (resolved_at IS NULL)),
    CONSTRAINT request_authorized_iff_decided CHECK (
        (state IN ('allowed', 'denied')) = (authorization_id IS NOT NULL)),
    -- No question without a living owner or an expiry.
    CONSTRAINT detached_request_expires CHECK (detached_at IS NULL OR expires_at IS NOT NULL)
);
CREATE INDEX permission_requests_session
    ON permission_requests (session_id, tenant_id, permission_request_id DESC);
CREATE INDEX permission_requests_pending ON permission_requests (session_id, tenant_id)
    WHERE state = 'pending';
CREATE INDEX permission_requests_due ON permission_requests (expires_at) WHERE state = 'pending';
CREATE INDEX permission_requests_user ON permission_requests (user_id, tenant_id, permission_request_id DESC);
-- What an identical call may take over: few at any time, since a spent question leaves it.
CREATE INDEX permission_requests_unspent ON permission_requests (session_id, token_id, tool_id, tenant_id)
    WHERE used_at IS NULL AND state <> 'cancelled';
CALL protect_tenant_table('permission_requests', 'SELECT, INSERT, UPDATE');

CREATE TABLE permission_grants (
    tenant_id           uuid NOT NULL,
    permission_grant_id uuid NOT NULL,
    session_id          uuid NOT NULL,
    action              text NOT NULL,
    resource_class      text NOT NULL,
    -- A grant is void when the tool's definition changes.
    definition_hash     bytea,
    state               text NOT NULL DEFAULT 'active',
    created_at          timestamptz NOT NULL,
    revoked_at          timestamptz,

    PRIMARY KEY (tenant_id, permission_grant_id),
    FOREIGN KEY (tenant_id, session_id) REFERENCES sessions,
    CONSTRAINT grant_state_known CHECK (state IN ('active', 'revoked')),
    CONSTRAINT grant_revoked_with_time CHECK ((state = 'revoked') = (revoked_at IS NOT NULL))
);
CREATE INDEX permission_grants_session ON permission_grants (session_id, action, resource_class, tenant_id);
CALL protect_tenant_table('permission_grants', 'SELECT, INSERT, UPDATE');
