-- MCP servers of a tenant, their sealed values and their tools.

CREATE TABLE mcp_servers (
    tenant_id       uuid NOT NULL REFERENCES tenants,
    -- `custom-<12 hex>`, or the id of a built-in server. Also the source id of its tools.
    server_id       text NOT NULL,
    slug            text NOT NULL,
    name            text NOT NULL,
    description     text NOT NULL,
    icon            text NOT NULL,
    tags            text[] NOT NULL,
    transport       text NOT NULL,
    url             text NOT NULL,
    command         text NOT NULL,
    args            text[] NOT NULL,
    cwd             text NOT NULL,
    auth_mode       text NOT NULL,
    api_key_header  text NOT NULL,
    -- The OAuth settings without the client secret; NULL: none.
    oauth           jsonb,
    timeout_seconds integer NOT NULL,
    enabled         boolean NOT NULL,
    -- As submitted: what is left out has the default of docs/limits.md.
    governance      jsonb,
    -- Grows when what the server reaches changes; never shrinks.
    config_revision bigint NOT NULL DEFAULT 1,
    -- Of the form as a whole: grows with every save.
    form_revision   bigint NOT NULL DEFAULT 1,
    status          text NOT NULL DEFAULT 'untested',
    -- Fixed words of ours, never the peer's.
    status_error    text,
    checked_at      timestamptz,
    -- When its tools were first pinned: from then on a new tool is not trusted by itself.
    pinned_at       timestamptz,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, server_id),
    CONSTRAINT mcp_servers_slug_key UNIQUE (slug, tenant_id),
    CONSTRAINT server_transport_known CHECK (transport IN ('stdio', 'sse', 'http')),
    CONSTRAINT server_auth_mode_known CHECK (
        auth_mode IN ('none', 'shared_headers', 'bearer', 'api_key', 'oauth', 'delegation')),
    CONSTRAINT server_timeout_in_range CHECK (timeout_seconds BETWEEN 1 AND 600),
    CONSTRAINT server_status_known CHECK (status IN ('untested', 'ready', 'error')),
    CONSTRAINT server_slug_legal CHECK (slug ~ '^[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}$')
);
CREATE UNIQUE INDEX mcp_servers_name_key ON mcp_servers (lower(name), tenant_id);
CALL protect_tenant_table('mcp_servers', 'SELECT, INSERT, UPDATE, DELETE');

-- Environment and header values and the client secret, sealed one by one.
CREATE TABLE mcp_server_secrets (
    tenant_id  uuid NOT NULL,
    server_id  text NOT NULL,
    kind       text NOT NULL,
    -- The variable's or header's name; '' for the client secret.
    name       text NOT NULL,
    sealed     text NOT NULL,
    -- Which key of the keyring sealed it.
    key_id     text NOT NULL,

    PRIMARY KEY (tenant_id, server_id, kind, name),
    FOREIGN KEY (tenant_id, server_id) REFERENCES mcp_servers ON DELETE CASCADE,
    CONSTRAINT server_secret_kind_known CHECK (kind IN ('env', 'header', 'client_secret'))
);
CALL protect_tenant_table('mcp_server_secrets', 'SELECT, INSERT, UPDATE, DELETE');

-- What a deleted server was called: the audit names it for ever.
CREATE TABLE mcp_server_tombstones (
    tenant_id  uuid NOT NULL REFERENCES tenants,
    server_id  text NOT NULL,
    name       text NOT NULL,
    deleted_at timestamptz NOT NULL,

    PRIMARY KEY (tenant_id, server_id)
);
CALL protect_tenant_table('mcp_server_tombstones', 'SELECT, INSERT');

-- Tools with the definition that was approved (the pin) and, in quarantine, the one that now stands
-- against it.
CREATE TABLE mcp_tools (
    tenant_id          uuid NOT NULL,
    server_id          text NOT NULL,
    tool_id            text NOT NULL,
    -- What agents call: mcp__<source>__<tool>. Looked up here, never parsed.
    agent_name         text NOT NULL,
    original_name      text NOT NULL,
    -- The peer's JSON verbatim: numbers of any size, unknown fields. NULL: none was ever readable.
    definition         text,
    definition_hash    bytea,
    pending_definition text,
    pending_hash       bytea,
    enabled            boolean NOT NULL DEFAULT true,
    policy             text NOT NULL DEFAULT 'ask',
    pin                text NOT NULL,
    problem            text,
    warnings           text[] NOT NULL DEFAULT '{}',
    first_seen_at      timestamptz NOT NULL,
    -- The server no longer offers it; the pin stays, so that it cannot come back changed unseen.
    removed_at         timestamptz,

    PRIMARY KEY (tenant_id, server_id, tool_id),
    FOREIGN KEY (tenant_id, server_id) REFERENCES mcp_servers ON DELETE CASCADE,
    CONSTRAINT mcp_tools_agent_name_key UNIQUE (agent_name, tenant_id),
    CONSTRAINT mcp_tools_original_name_key UNIQUE (original_name, server_id, tenant_id),
    CONSTRAINT tool_policy_known CHECK (policy IN ('ask', 'allow', 'deny')),
    CONSTRAINT tool_pin_known CHECK (pin IN ('approved', 'quarantined', 'invalid')),
    CONSTRAINT tool_hash_is_sha256 CHECK (octet_length(definition_hash) = 32),
    CONSTRAINT definition_with_its_hash CHECK ((definition IS NULL) = (definition_hash IS NULL)),
    CONSTRAINT pending_with_its_hash CHECK ((pending_definition IS NULL) = (pending_hash IS NULL)),
    CONSTRAINT approved_is_the_present_one CHECK (
        pin <> 'approved' OR (definition IS NOT NULL AND pending_definition IS NULL))
);
CALL protect_tenant_table('mcp_tools', 'SELECT, INSERT, UPDATE, DELETE');
