-- One row of the tenant $TENANT in every tenant table, as the owner. Whoever adds a table adds a row here:
-- the test that reads this refuses an empty one.

INSERT INTO tenants (tenant_id, slug, created_at)
VALUES ('$TENANT', 'tenant-$TENANT', now());

INSERT INTO users (tenant_id, user_id, email, role, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000001', 'ann@example.org', 'superadmin', now());

INSERT INTO api_tokens (tenant_id, token_id, user_id, name, digest, scopes, created_at, expires_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000002', '00000000-0000-7000-8000-000000000001', 'token',
        sha256('$TENANT'), '{api:read}', now(), now() + interval '1 day');

INSERT INTO web_sessions (tenant_id, web_session_id, user_id, digest, created_at, last_used_at, expires_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-00000000000d', '00000000-0000-7000-8000-000000000001',
        sha256('cookie of $TENANT'), now(), now(), now() + interval '1 day');

INSERT INTO mcp_servers (tenant_id, server_id, slug, name, description, icon, tags, transport, url, command,
                         args, cwd, auth_mode, api_key_header, timeout_seconds, enabled, created_at, updated_at)
VALUES ('$TENANT', 'custom-000000000001', 'demo', 'Demo', '', '', '{}', 'http', 'https://example.org/mcp', '',
        '{}', '', 'none', '', 60, true, now(), now());

INSERT INTO mcp_server_secrets (tenant_id, server_id, kind, name, sealed, key_id)
VALUES ('$TENANT', 'custom-000000000001', 'header', 'x-key', 'sealed', 'key');

INSERT INTO tenant_variables (tenant_id, name, sealed, key_id, hosts, updated_at)
VALUES ('$TENANT', 'KEY', 'sealed', 'key', '{example.org}', now());

INSERT INTO mcp_server_tombstones (tenant_id, server_id, name, deleted_at)
VALUES ('$TENANT', 'custom-000000000009', 'Gone', now());

INSERT INTO mcp_tools (tenant_id, server_id, tool_id, agent_name, original_name, definition, definition_hash, pin,
                       first_seen_at)
VALUES ('$TENANT', 'custom-000000000001', 'echo', 'mcp__demo__echo', 'echo', '{}', sha256('{}'), 'approved', now());

INSERT INTO projects (tenant_id, project_id, owner_user_id, title, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000003', '00000000-0000-7000-8000-000000000001', 'project', now());

INSERT INTO sessions (tenant_id, session_id, owner_user_id, title, permission_epoch_id, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000004', '00000000-0000-7000-8000-000000000001', 'session',
        '00000000-0000-7000-8000-000000000005', now());

INSERT INTO permission_epochs (tenant_id, permission_epoch_id, session_id, reason, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000005', '00000000-0000-7000-8000-000000000004',
        'session_created', now());

INSERT INTO permission_requests (tenant_id, permission_request_id, session_id, user_id, owner_kind, execution_id,
                                 tool_call_id, action, resource, resource_class, words, example, input_digest,
                                 input_shown, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000006', '00000000-0000-7000-8000-000000000004',
        '00000000-0000-7000-8000-000000000001', 'host', '00000000-0000-7000-8000-000000000007', '1', 'tool_call',
        'demo/echo', 'demo/echo', 'words', 'example', sha256('{}'), '{}', now());

INSERT INTO permission_grants (tenant_id, permission_grant_id, session_id, action, resource_class, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000008', '00000000-0000-7000-8000-000000000004', 'tool_call',
        'demo/echo', now());

INSERT INTO cas_objects (tenant_id, sha256, size_bytes, body)
VALUES ('$TENANT', sha256('{}'), 2, '{}');

INSERT INTO tool_calls (tenant_id, execution_id, call_id, invocation_id, session_id, node_id, state, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000007', '1', '00000000-0000-7000-8000-000000000009',
        '00000000-0000-7000-8000-000000000004', '00000000-0000-7000-8000-00000000000a', 'running', now());

INSERT INTO invocations (tenant_id, invocation_id, session_id, user_id, execution_id, call_id, origin, asked_name,
                         request_sha256, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000009', '00000000-0000-7000-8000-000000000004',
        '00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000007', '1', 'gateway',
        'mcp__demo__echo', sha256('{}'), now());

INSERT INTO permission_authorizations (tenant_id, authorization_id, session_id, user_id, action, resource,
                                       approval_mode, outcome, source, permission_epoch_id, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-00000000000b', '00000000-0000-7000-8000-000000000004',
        '00000000-0000-7000-8000-000000000001', 'tool_call', 'demo/echo', 'always_allow', 'allowed', 'always_allow',
        '00000000-0000-7000-8000-000000000005', now());

INSERT INTO audit_leaves (tenant_id, kind, subject_id, sha256)
VALUES ('$TENANT', 'event', '00000000-0000-7000-8000-00000000000c', sha256('{}'));

INSERT INTO audit_events (tenant_id, audit_event_id, via, action, subject, details, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-00000000000c', 'operator', 'tenant.created', '$TENANT', '{}', now());

INSERT INTO events (tenant_id, session_id, type, data, created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-000000000004', 'session.created', '{}', now());

INSERT INTO idempotency_keys (tenant_id, idempotency_key_id, caller_id, user_id, key_digest, body_digest, method, path,
                              created_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-00000000000c', '00000000-0000-7000-8000-000000000002',
        '00000000-0000-7000-8000-000000000001', sha256('key'), sha256('body'), 'POST', '/api/sessions', now());

INSERT INTO mcp_connections (tenant_id, server_id, user_id, generation, version, state, updated_at)
VALUES ('$TENANT', 'custom-000000000001', '00000000-0000-7000-8000-000000000001', 1, 1, 'disconnected', now());

INSERT INTO mcp_oauth_attempts (tenant_id, attempt_id, server_id, user_id, state_digest, browser_digest, config_revision,
                                generation, issuer, callback, status, created_at, expires_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-00000000000e', 'custom-000000000001', '00000000-0000-7000-8000-000000000001',
        sha256('state of $TENANT'), sha256('browser'), 1, 1, 'https://idp.example', 'https://us.example/callback', 'void',
        now(), now());

INSERT INTO mcp_oauth_clients (tenant_id, issuer, redirect_uri, sealed, key_id, created_at)
VALUES ('$TENANT', 'https://idp.example', 'https://us.example/callback', 'sealed', 'key', now());

INSERT INTO company_issuers (tenant_id, revision, enabled, name, issuer, client_id, scopes, adds_people, roles, local_sign_in,
                             gateway_tokens, gateway_audiences, updated_at)
VALUES ('$TENANT', 1, true, 'Acme', 'https://idp.example', 'bailiwick', '{openid}', false, '[]', true, false, '{}', now());

INSERT INTO company_accounts (tenant_id, issuer, subject, user_id, created_at)
VALUES ('$TENANT', 'https://idp.example', 'ann', '00000000-0000-7000-8000-000000000001', now());

INSERT INTO company_sign_ins (tenant_id, sign_in_id, state_digest, browser_digest, network_digest, revision, sealed, key_id,
                              created_at, expires_at)
VALUES ('$TENANT', '00000000-0000-7000-8000-00000000000f', sha256('company state of $TENANT'), sha256('browser'),
        sha256('network'), 1, 'sealed', 'key', now(), now());
