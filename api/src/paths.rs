//! Every path, once: the router, links and the OpenAPI document use these.

pub const HEALTHZ: &str = "/healthz";
pub const READYZ: &str = "/readyz";
pub const OPENAPI: &str = "/api/openapi.json";
pub const DOCS: &str = "/api/docs";
pub const DOCS_STYLE: &str = "/api/docs.css";
pub const ERROR_PAGE: &str = "/docs/errors/{page}";

pub const LOGIN: &str = "/api/t/{tenant}/login";
pub const LOGOUT: &str = "/api/logout";
pub const ME: &str = "/api/me";
pub const MY_PASSWORD: &str = "/api/me/password";
pub const TENANT: &str = "/api/tenant";
pub const COMPANY_SIGN_IN: &str = "/api/tenant/company-sign-in";
pub const COMPANY_SIGN_IN_TEST: &str = "/api/tenant/company-sign-in/test";
pub const VARIABLES: &str = "/api/tenant/variables";
pub const VARIABLE: &str = "/api/tenant/variables/{name}";
pub const USERS: &str = "/api/users";
pub const USER: &str = "/api/users/{user}";
pub const USER_COMPANY_ACCOUNT: &str = "/api/users/{user}/company-account";
pub const ACCESS_EXPLAIN: &str = "/api/access/explain";
pub const TOKENS: &str = "/api/tokens";
pub const TOKEN: &str = "/api/tokens/{token}";

pub const SERVERS: &str = "/api/mcp/servers";
pub const SERVERS_IMPORT: &str = "/api/mcp/servers/import";
pub const SERVERS_EXPORT: &str = "/api/mcp/servers/export";
pub const STDIO_PROGRAMS: &str = "/api/mcp/stdio-programs";
pub const SERVER: &str = "/api/mcp/servers/{server}";
pub const SERVER_STATUS: &str = "/api/mcp/servers/{server}/status";
pub const SERVER_TEST: &str = "/api/mcp/servers/{server}/test";
pub const SERVER_INSPECT: &str = "/api/mcp/servers/{server}/inspect";
pub const SERVER_TOOLS: &str = "/api/mcp/servers/{server}/tools";
pub const SERVER_TOOLS_REFRESH: &str = "/api/mcp/servers/{server}/tools/refresh";
pub const SERVER_TOOL: &str = "/api/mcp/servers/{server}/tools/{tool}";
pub const SERVER_TOOL_APPROVE: &str = "/api/mcp/servers/{server}/tools/{tool}/approve";
pub const CONNECTIONS: &str = "/api/mcp/connections";
pub const CONNECTION: &str = "/api/mcp/servers/{server}/connection";
pub const CONNECTION_TEST: &str = "/api/mcp/servers/{server}/connection/test";
pub const SYSTEM_CONNECTION: &str = "/api/system/mcp-servers/{server}/connection";
pub const OAUTH_START: &str = "/api/mcp/servers/{server}/oauth/start";
pub const OAUTH_CANCEL: &str = "/api/mcp/servers/{server}/oauth/cancel";
pub const OAUTH_CONFIRM: &str = "/api/mcp/servers/{server}/oauth/confirm";
pub const OAUTH_CLEAR: &str = "/api/mcp/servers/{server}/oauth/clear";
pub const OAUTH_CALLBACK: &str = "/api/mcp/oauth/callback/{server}";
pub const CLIENT_DOCUMENT: &str = "/.well-known/bailiwick-client.json";
pub const DISCONNECT_EVERYONE: &str = "/api/mcp/servers/{server}/disconnect-everyone";

pub const PROJECTS: &str = "/api/projects";
pub const PROJECT: &str = "/api/projects/{project}";
pub const SESSIONS: &str = "/api/sessions";
pub const SESSION: &str = "/api/sessions/{session}";
pub const SESSION_EVENTS: &str = "/api/sessions/{session}/events";
pub const INVOCATIONS: &str = "/api/sessions/{session}/mcp/invocations";
pub const INVOCATION: &str = "/api/sessions/{session}/mcp/invocations/{invocation}";
pub const AUTHORIZATIONS: &str = "/api/sessions/{session}/permission-authorizations";
pub const EPOCH: &str = "/api/sessions/{session}/permission-epoch";

pub const PERMISSION_REQUESTS: &str = "/api/permission-requests";
pub const PERMISSION_REQUEST: &str = "/api/permission-requests/{request}";
pub const PERMISSION_DECISION: &str = "/api/permission-requests/{request}/decision";
pub const PERMISSION_GRANTS: &str = "/api/permission-grants";
pub const PERMISSION_GRANT: &str = "/api/permission-grants/{grant}";

pub const GATEWAY: &str = "/mcp";
pub const GATEWAY_SESSION: &str = "/mcp/{session}";
pub const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";

// Pages.
pub const HOME: &str = "/";
pub const SIGN_IN: &str = "/sign-in";
pub const TENANT_SIGN_IN: &str = "/t/{tenant}/sign-in";
pub const COMPANY_START: &str = "/t/{tenant}/oidc/start";
pub const COMPANY_CALLBACK: &str = "/t/{tenant}/oidc/callback";
pub const SIGN_OUT: &str = "/sign-out";
pub const CONNECTIONS_PAGE: &str = "/connections";
pub const CONFIRM_PAGE: &str = "/connections/confirm";
pub const COMPANY_ACCOUNT_PAGE: &str = "/me/company";
pub const PASSWORD_PAGE: &str = "/me/password";
pub const SERVERS_PAGE: &str = "/servers";
pub const QUESTIONS: &str = "/questions";
pub const QUESTION_PAGE: &str = "/questions/{request}";
pub const STYLESHEET: &str = "/assets/console.css";
pub const CONFIRM_SCRIPT: &str = "/assets/confirm.js";
pub const ICON: &str = "/assets/icon.svg";
