//! Every number of the service, with its unit, its reason and its source.
//!
//! A limit has a default and a ceiling: a superadmin may set a server's limits up to the ceiling.
//! docs/limits.md is generated from [`ALL`]; nobody else knows a number.

use std::time::Duration;

/// One number as docs/limits.md lists it.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub name: &'static str,
    pub default: u64,
    pub ceiling: u64,
    pub unit: &'static str,
    pub reason: &'static str,
}

impl Limit {
    #[must_use]
    pub const fn millis(self) -> Duration {
        Duration::from_millis(self.default)
    }

    #[must_use]
    pub const fn seconds(self) -> Duration {
        Duration::from_secs(self.default)
    }

    /// The default as a length or count in memory.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "we build for 64 bits only")]
    pub const fn size(self) -> usize {
        self.default as usize
    }
}

macro_rules! limits {
    ($($name:ident = $default:expr, up to $ceiling:expr, $unit:literal, $reason:literal;)*) => {
        $(#[doc = $reason]
        pub const $name: Limit = Limit {
            name: stringify!($name), default: $default, ceiling: $ceiling, unit: $unit, reason: $reason,
        };)*

        /// All limits, in the order of this file.
        pub const ALL: &[Limit] = &[$($name),*];
    };
}

limits! {
    // A call to a custom server (design: governance, "Limits of a custom server").
    CALLS_RUNNING = 1, up to 256, "calls", "calls of one server that run at the same moment, over all sessions";
    CALLS_WAITING = 8, up to 10_000, "calls", "calls of one server that may wait for a slot; one more is refused at once";
    QUEUE_TIMEOUT_MS = 20_000, up to 600_000, "ms", "a call that waited this long for a slot is taken out, never sent";
    MIN_INTERVAL_MS = 0, up to 3_600_000, "ms", "pause between the starts of two calls of one server; 0 = no pacing";
    RESPONSE_BYTES = 5_000_000, up to 268_435_456, "bytes", "largest result of a call: UTF-8 bytes of JSON({content, structuredContent})";
    TOOL_TIMEOUT_SECONDS = 60, up to 600, "s", "deadline of one call, attempts included; always on";

    // Receiving from upstream.
    BODY_CAP_FACTOR = 4, up to 4, "×", "a body may be this many times the response limit while it is received (JSON escapes, SSE framing)";
    BODY_CAP_FLOOR_BYTES = 1_048_576, up to 1_048_576, "bytes", "no body cap is smaller than this";
    ERROR_BODY_BYTES = 65_536, up to 65_536, "bytes", "what is read of an upstream's error body";
    HEADER_BYTES = 65_536, up to 65_536, "bytes", "largest header block that is read from an upstream";
    CONNECT_TIMEOUT_MS = 10_000, up to 60_000, "ms", "TCP and TLS set-up to an upstream";
    INITIALIZE_TIMEOUT_MS = 20_000, up to 60_000, "ms", "an upstream must answer initialize or server/discover by then";
    DISCOVERY_TIMEOUT_MS = 30_000, up to 120_000, "ms", "all pages of tools/list together; also how long a refresh request is held";
    CLIENT_IDLE_SECONDS = 300, up to 3_600, "s", "an upstream client that nobody used for this long is closed";
    CLIENTS_POOLED = 1_024, up to 16_384, "clients", "upstream clients kept open by one process";
    REDIRECTS = 5, up to 5, "hops", "redirects followed by a request that carries no credential";
    TOOLS_PER_SERVER = 1_000, up to 1_000, "tools", "discovery stops here with a warning: no model can choose among more";
    TOOL_PAGES = 200, up to 200, "pages", "tools/list pages read of one server";
    CONNECTION_IDLE_MS = 4_000, up to 60_000, "ms", "an unused connection to an upstream is closed before the upstream does it (node and uvicorn: 5 s): a request that meets a closing connection cannot be proven unsent";
    PROBE_TIMEOUT_MS = 5_000, up to 10_000, "ms", "an upstream that leaves server/discover unanswered for this long is asked to initialize instead";
    STREAM_RESUMES = 3, up to 10, "attempts", "a broken response stream is resumed with Last-Event-ID this often in a row";
    STREAM_RETRY_MS = 1_000, up to 30_000, "ms", "pause before a response stream is resumed, unless the server names one";
    FAREWELL_TIMEOUT_MS = 5_000, up to 5_000, "ms", "what we only tell an upstream (cancelled, session ended, an answer to its ping) may take this long";

    // Tool definitions.
    SCHEMA_BYTES = 262_144, up to 262_144, "bytes", "largest input or output schema of a tool";
    SCHEMA_DEPTH = 64, up to 64, "levels", "deepest nesting of a schema";
    SCHEMA_PATTERNS = 256, up to 256, "patterns", "regular expressions of one schema; each property of an object is tried against them";
    SCHEMA_RESOURCES = 4, up to 4, "resources", "parts of a schema with an `$id`; the compiler may follow each order of entering them";
    SCHEMA_NESTING = 256, up to 256, "levels", "nesting of a schema with the deepest parts that it refers to; compiling one takes stack for each level";
    SCHEMA_WAYS = 4_096, up to 4_096, "ways", "ways through a schema that names unevaluated members; each is built before an input is seen";
    SCHEMA_STEPS = 5_000_000, up to 5_000_000, "steps", "work of one check of an input against a schema, so that no schema can hang us";
    SCHEMA_STACK_BYTES = 524_288, up to 524_288, "bytes", "stack that one check of an input may take; our threads have 2 MiB";
    REGEX_BYTES = 262_144, up to 262_144, "bytes", "one compiled regular expression of a schema; a larger one is not enforced";
    VIOLATIONS = 20, up to 20, "violations", "mistakes of an input that one answer lists";
    VIOLATION_CHARS = 200, up to 200, "characters", "words about one mistake of an input or a definition";
    DEFINITION_BYTES = 1_048_576, up to 1_048_576, "bytes", "one tool definition as the server lists it";
    TOOL_NAME_CHARS = 256, up to 256, "characters", "name that a server gives its tool (MCP recommends at most 128)";
    JSON_DEPTH = 127, up to 127, "levels", "deepest nesting of an input, a result or a definition; our JSON reader goes no deeper";
    DESCRIPTION_BYTES = 4_096, up to 4_096, "bytes", "a longer description is cut before a model sees it";
    VALIDATOR_CACHE = 4_096, up to 65_536, "schemas", "compiled validators kept by one process, by definition hash";
    HEAVY_INPUT_BYTES = 65_536, up to 65_536, "bytes", "a larger input is validated off the async threads";

    // Server configuration (design: connections, "Server configuration").
    SERVERS_PER_TENANT = 50, up to 50, "servers", "custom servers of one tenant";
    SERVER_NAME_CHARS = 100, up to 100, "characters", "name of a server";
    SLUG_CHARS = 100, up to 100, "characters", "slug of a server";
    SLUG_IN_TOOL_NAME_CHARS = 21, up to 21, "characters", "a longer slug is replaced by the id in agent names, so that these stay within 64";
    SERVER_DESCRIPTION_CHARS = 2_000, up to 2_000, "characters", "description of a server";
    COMMAND_CHARS = 4_096, up to 4_096, "characters", "command and working directory of a stdio server";
    ARGUMENTS = 100, up to 100, "arguments", "arguments of a stdio server";
    ARGUMENT_CHARS = 8_192, up to 8_192, "characters", "one argument of a stdio server";
    URL_CHARS = 8_192, up to 8_192, "characters", "URL of a server";
    HEADER_ENTRIES = 100, up to 100, "entries", "environment variables, or headers, of a server";
    HEADER_VALUE_BYTES = 16_384, up to 16_384, "bytes", "one environment or header value";
    HEADER_TOTAL_BYTES = 65_536, up to 65_536, "bytes", "all environment and header values of a server together";
    OAUTH_FIELD_CHARS = 4_096, up to 4_096, "characters", "one OAuth field of a server";
    TAGS = 20, up to 20, "tags", "tags of a server";
    TAG_CHARS = 40, up to 40, "characters", "one tag of a server";

    // Names and people.
    TOOL_ID_CHARS = 36, up to 36, "characters", "id of a tool";
    AGENT_NAME_CHARS = 64, up to 64, "characters", "name of a tool as models see it";
    TITLE_CHARS = 200, up to 200, "characters", "title of a session, project or token";
    EMAIL_CHARS = 254, up to 254, "characters", "an e-mail address (RFC 5321)";
    PASSWORD_CHARS = 1_024, up to 1_024, "characters", "a password; longer ones only cost us time";
    PASSWORD_CHARS_MIN = 8, up to 8, "characters", "shortest password that can be set (NIST SP 800-63B)";
    PASSWORD_HASHES = 2, up to 64, "hashes", "passwords that one process hashes at the same moment: each takes 19 MiB and a core";
    TOKEN_DAYS = 90, up to 366, "days", "life of an API token unless it asks for another";

    // Permissions.
    QUESTION_EXPIRES_MS = 600_000, up to 600_000, "ms", "a gateway question lives this long after the last contact";
    PERMISSION_WAIT_SECONDS = 600, up to 600, "s", "a caller that cannot be asked in protocol is held this long";
    QUESTION_POLL_MS = 1_000, up to 1_000, "ms", "a held call looks at its question this often, whatever signals say";
    QUESTION_INPUT_BYTES = 4_096, up to 4_096, "bytes", "of an input that a question shows";
    QUESTIONS_PENDING = 200, up to 200, "questions", "pending questions of one session";
    ERROR_MESSAGE_CHARS = 1_000, up to 1_000, "characters", "an error message to an agent";

    // HTTP and gateway.
    REQUEST_BODY_BYTES = 1_500_000, up to 1_500_000, "bytes", "body of a request to the REST API";
    GATEWAY_BODY_BYTES = 4_000_000, up to 16_000_000, "bytes", "body of a request to the gateway";
    INPUT_BYTES = 1_000_000, up to 1_000_000, "bytes", "input of one call";
    PAGE_ITEMS = 50, up to 200, "items", "items of a page of a list";
    SSE_COMMENT_MS = 15_000, up to 15_000, "ms", "a comment keeps an idle stream alive; also how often a stream re-checks its caller";
    EVENT_POLL_MS = 1_000, up to 1_000, "ms", "an event stream looks for new events this often, whatever signals say";
    GATEWAY_TOOLS_TTL_MS = 30_000, up to 30_000, "ms", "how long a client may keep tools/list (`ttlMs`)";
    GATEWAY_DIRECT_MS = 300, up to 5_000, "ms", "a call that ends by then is answered as one JSON object; a later answer is an event stream, which carries comments while it waits";
    GATEWAY_LAST_WORDS_MS = 500, up to 1_000, "ms", "when the node stops, a held call may still say how it ended for this long";
    GATEWAY_SESSION_SECONDS = 86_400, up to 604_800, "s", "an Mcp-Session-Id of the older protocol is good for this long; then clients initialize again";
    REQUEST_ID_BYTES = 256, up to 256, "bytes", "JSON of a request's id; it is part of a key";
    BATCH_MESSAGES = 100, up to 100, "messages", "JSON-RPC messages of one batch (2025-03-26 alone has batches)";
    IN_FLIGHT_CALLS = 10_000, up to 100_000, "calls", "calls that one process holds at the same time";

    // Leases and timers.
    NODE_LEASE_MS = 10_000, up to 15_000, "ms", "a node that did not renew for this long is dead";
    NODE_HEARTBEAT_MS = 2_500, up to 5_000, "ms", "how often a node renews its lease";
    TICK_MS = 1_000, up to 1_000, "ms", "period of the tick loop";
    REAPER_BATCH = 500, up to 5_000, "rows", "rows that the reaper closes in one go";
    SHUTDOWN_MS = 7_000, up to 60_000, "ms", "calls may finish for this long after SIGTERM; `up` ends within 10 s";
    POSTGRES_STOP_MS = 1_500, up to 60_000, "ms", "the private Postgres may write its checkpoint for this long; then it is stopped at once and recovers when it starts";
    POSTGRES_START_SECONDS = 120, up to 600, "s", "the private Postgres must accept connections by then, a recovery after a crash included";
    NODE_FAREWELL_MS = 300, up to 1_000, "ms", "an ending node may take this long to tell the database";
    PARTITION_MONTHS_AHEAD = 6, up to 12, "months", "partitions made ahead";
    TOOL_CALL_KEEP_DAYS = 3, up to 30, "days", "how long call ids are remembered after their execution ended";
    DATABASE_RETRY_MS = 2_000, up to 60_000, "ms", "when to come back while the database is unreachable";
    CLOSE_RETRY_SECONDS = 60, up to 600, "s", "closing a call is tried for this long while the database is away; then the reaper does it";
    DATABASE_PING_AFTER_MS = 1_000, up to 60_000, "ms", "a connection that was idle for longer is tried before it is used: it may have died in an outage";
    DATABASE_CONNECTIONS = 24, up to 200, "connections", "pool of one process";
    JOB_CONCURRENCY = 4, up to 64, "jobs", "discoveries that one worker runs at the same time";
    TICK_LEASE_MS = 30_000, up to 300_000, "ms", "a tick's work ends by then, and another node may take it";
    RECORD_KEEP_DAYS = 2, up to 30, "days", "how long ended nodes, finished jobs and ticks that no version knows any more are remembered, for whoever looks for a cause";
    JOB_TIMEOUT_SECONDS = 90, up to 600, "s", "a job ends by then: a discovery with its connect and initialize";
    JOB_POLL_MS = 1_000, up to 10_000, "ms", "how often a worker looks for jobs; also the pause before a failed one runs again";
    JOB_HEARTBEAT_MS = 5_000, up to 30_000, "ms", "how often a worker says that it lives";
    JOB_HEARTBEATS_MISSED = 4, up to 20, "heartbeats", "after so many a worker's jobs are given to others; must outlast a graceful shutdown";
    JOB_BACKOFF_MS = 2_000, up to 60_000, "ms", "pause before the second attempt of a job; doubles with each";
    JOB_BACKOFF_CEILING_MS = 300_000, up to 3_600_000, "ms", "longest pause between two attempts of a job";
    JOB_ATTEMPTS = 5, up to 20, "attempts", "a job that failed this often is given up";

    // Content-addressed storage (design: artifacts).
    CAS_INLINE_BYTES = 65_536, up to 65_536, "bytes", "a smaller body sits in Postgres, in the transaction of its invocation";
    CAS_CHUNK_BYTES = 8_388_608, up to 8_388_608, "bytes", "one immutable object of a larger body";

    // Retries against custom servers.
    RETRY_AFTER_CAP_MS = 60_000, up to 60_000, "ms", "a longer Retry-After is cut to this";
    COOLDOWN_MS = 1_000, up to 1_000, "ms", "cool-down of a group after a 429 without Retry-After";
}

// Two missed heartbeats must not kill a node.
const _: () = assert!(2 * NODE_HEARTBEAT_MS.default < NODE_LEASE_MS.default);
// A dead node's rows are final within 15 s (design: interfaces, "After a crash").
const _: () = assert!(NODE_LEASE_MS.default + 2 * TICK_MS.default <= 15_000);
// A worker that ends gracefully sends no heartbeats; its jobs must not be given away meanwhile.
const _: () =
    assert!(SHUTDOWN_MS.default < JOB_HEARTBEAT_MS.default * (JOB_HEARTBEATS_MISSED.default - 1));
// A job has time for a discovery.
const _: () = assert!(
    INITIALIZE_TIMEOUT_MS.default + DISCOVERY_TIMEOUT_MS.default + CONNECT_TIMEOUT_MS.default
        <= JOB_TIMEOUT_SECONDS.default * 1_000
);
// `up` ends within 10 s of SIGTERM, its Postgres included.
const _: () =
    assert!(SHUTDOWN_MS.default + NODE_FAREWELL_MS.default + POSTGRES_STOP_MS.default < 10_000);
// mcp__<source>__<toolId> fits the narrowest client.
const _: () = assert!(
    5 + SLUG_IN_TOOL_NAME_CHARS.default + 2 + TOOL_ID_CHARS.default <= AGENT_NAME_CHARS.default
);
// What one call may send us fits the body that carries it.
const _: () = assert!(INPUT_BYTES.default < GATEWAY_BODY_BYTES.default);
