//! Every path, once: the router, links and the OpenAPI document use these.

pub const HEALTHZ: &str = "/healthz";
pub const READYZ: &str = "/readyz";
pub const OPENAPI: &str = "/api/openapi.json";

pub const ME: &str = "/api/me";
pub const TENANT: &str = "/api/tenant";
pub const USERS: &str = "/api/users";
pub const USER: &str = "/api/users/{user}";
pub const TOKENS: &str = "/api/tokens";
pub const TOKEN: &str = "/api/tokens/{token}";

pub const SERVERS: &str = "/api/mcp/servers";
pub const SERVER: &str = "/api/mcp/servers/{server}";
pub const SERVER_STATUS: &str = "/api/mcp/servers/{server}/status";
pub const SERVER_TEST: &str = "/api/mcp/servers/{server}/test";
pub const SERVER_TOOLS: &str = "/api/mcp/servers/{server}/tools";
pub const SERVER_TOOLS_REFRESH: &str = "/api/mcp/servers/{server}/tools/refresh";
pub const SERVER_TOOL: &str = "/api/mcp/servers/{server}/tools/{tool}";

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
