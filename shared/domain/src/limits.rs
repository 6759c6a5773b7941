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
    ERROR_DATA_BYTES = 16_384, up to 16_384, "bytes", "`data` of an upstream's JSON-RPC error that is passed on; a larger one is left out";
    HEADER_BYTES = 65_536, up to 65_536, "bytes", "largest header block that is read from an upstream";
    CONNECT_TIMEOUT_MS = 10_000, up to 60_000, "ms", "TCP and TLS set-up to an upstream";
    INITIALIZE_TIMEOUT_MS = 20_000, up to 60_000, "ms", "an upstream must answer initialize or server/discover by then";
    DISCOVERY_TIMEOUT_MS = 30_000, up to 120_000, "ms", "all pages of tools/list together; also how long a refresh request is held";
    LIST_CHANGE_MS = 60_000, up to 3_600_000, "ms", "a server that says that its tools changed is asked for them no sooner than this after it was asked before";
    CLIENT_IDLE_SECONDS = 300, up to 3_600, "s", "an upstream client that nobody used for this long is closed";
    CLIENTS_POOLED = 1_024, up to 16_384, "clients", "upstream clients kept open by one process";
    REDIRECTS = 5, up to 5, "hops", "redirects that one request follows within its origin";
    TOOLS_PER_SERVER = 1_000, up to 1_000, "tools", "discovery stops here with a warning: no model can choose among more";
    TOOL_PAGES = 200, up to 200, "pages", "tools/list pages read of one server";
    CONNECTION_IDLE_MS = 4_000, up to 60_000, "ms", "an unused connection to an upstream is closed before the upstream does it (node and uvicorn: 5 s): a request that meets a closing connection cannot be proven unsent";
    PROBE_TIMEOUT_MS = 5_000, up to 10_000, "ms", "an upstream that leaves server/discover unanswered for this long is asked to initialize instead";
    STREAM_RESUMES = 3, up to 10, "attempts", "a broken response stream is resumed with Last-Event-ID this often in a row";
    STREAM_RETRY_MS = 1_000, up to 30_000, "ms", "pause before a response stream is resumed, unless the server names one";
    FAREWELL_TIMEOUT_MS = 5_000, up to 5_000, "ms", "what we only tell an upstream (cancelled, session ended, an answer to its ping) may take this long";
    RELAY_MESSAGES = 256, up to 4_096, "messages", "what a server says during one call and nobody has taken yet; more notifications are dropped, requests wait";
    SERVER_REQUESTS = 16, up to 256, "requests", "requests of one upstream to us that wait for their answer; more are refused";
    STANDING_QUIET_MS = 30_000, up to 300_000, "ms", "a stream of a server's own messages that ends sooner without a message is asked for again ever more slowly, up to this pause";

    // Programs on our host (design: connections, "stdio").
    STDIO_CHILDREN = 64, up to 1_024, "programs", "stdio servers that run in one process at the same time; node takes some 50 MB each";
    STDIO_TENANT = 48, up to 1_024, "programs", "of these, stdio servers of one tenant: however busy they are, others find a place";
    STDIO_SHARED = 32, up to 1_024, "programs", "of these, for clients that a whole tenant shares: sessions of single people never take them";
    STDIO_OWN_TENANT = 16, up to 512, "programs", "stdio servers that stand for sessions of single people (older clients in the pass-through form, subscriptions), of one tenant; two tenants are never in each other's way";
    STDIO_OWN_PERSON = 8, up to 256, "programs", "the same of one person, over all servers; the one that was idle for longest gives way";
    STDIO_PLACE_MS = 10_000, up to 60_000, "ms", "whoever has less than their share of the programs waits this long for one of others to have nothing to do";
    STDIO_START_MS = 60_000, up to 300_000, "ms", "a stdio server must answer its first request by then: `npx` and `uvx` download what they run, in a sandbox at each start, since its home is new";
    STDIO_MEMORY_BYTES = 4_294_967_296, up to 68_719_476_736, "bytes", "private memory of one process of a stdio server (its data segment: address space would count what node merely reserves)";
    STDIO_PROCESSES = 512, up to 4_096, "threads", "processes and threads of a stdio server";
    STDIO_FILES = 1_024, up to 65_536, "files", "files that one process of a stdio server may have open";
    STDIO_SCRATCH_BYTES = 268_435_456, up to 4_294_967_296, "bytes", "the private /tmp of a sandboxed stdio server, home included; it is memory";
    STDIO_GRACE_MS = 1_000, up to 5_000, "ms", "a stdio server may end by itself for this long after the end of its input, and again after SIGTERM; then it is killed";
    STDIO_STDERR_BYTES = 8_192, up to 65_536, "bytes", "of what a stdio server last wrote to its standard error, kept to explain its end";
    STDIO_PROBE_MS = 5_000, up to 10_000, "ms", "trying whether a sandbox works here may take this long";
    STDIO_LAST_WORDS_MS = 100, up to 1_000, "ms", "what a stdio server said last may still be in its pipe this long after its end";
    STDIO_LAST_LINES_MS = 200, up to 1_000, "ms", "a message that a stdio server wrote before its end is still read this long after it";
    DUPLEX_QUEUE = 64, up to 1_024, "messages", "messages that wait to be written to a server that reads slowly";
    SSE_ENDPOINT_MS = 10_000, up to 60_000, "ms", "an HTTP+SSE server must name the address for our messages by then";

    // OAuth as a client (design: connections, "OAuth").
    OAUTH_REQUEST_MS = 15_000, up to 60_000, "ms", "one request to an authorization server, its body included";
    OAUTH_DISCOVERY_MS = 30_000, up to 120_000, "ms", "finding a server's authorization server: the probe and up to eight documents";
    OAUTH_DOCUMENT_BYTES = 262_144, up to 1_048_576, "bytes", "metadata, a registration or the answer of a token endpoint; the largest known metadata is some 10 kB";
    OAUTH_TOKEN_LIFE_SECONDS = 315_360_000, up to 315_360_000, "s", "an access token's life is cut to ten years: a time beyond is a mistake or an attack on our arithmetic";
    OAUTH_SCOPES = 200, up to 1_000, "scopes", "scopes that are read of one document, challenge or answer";
    OAUTH_SCOPE_CHARS = 256, up to 1_000, "characters", "one scope that a challenge names; longer ones are passed over";
    OAUTH_SERVERS_LISTED = 50, up to 1_000, "servers", "authorization servers that are read of one resource's metadata";
    OAUTH_ORIGINS = 256, up to 4_096, "origins", "authorization servers whose connections one process keeps for the next request";

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
    DIFF_CHANGES = 100, up to 100, "changes", "changes that a quarantined tool's diff lists; the rest is counted";
    DIFF_TEXT_CHARS = 2_000, up to 2_000, "characters", "one side of one change in a diff";
    DIFF_DEFINITION_BYTES = 65_536, up to 65_536, "bytes", "a larger definition is not repeated whole beside a diff";
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
    VARIABLES_PER_TENANT = 100, up to 100, "variables", "variables of a tenant";
    VARIABLE_NAME_CHARS = 100, up to 100, "characters", "name of a tenant variable";
    VARIABLE_HOSTS = 20, up to 20, "hosts", "hosts that one variable may be sent to";
    IMPORT_ENTRIES = 50, up to 50, "entries", "servers of one import: no tenant may have more";
    MEMBER_TEST_INTERVAL_MS = 10_000, up to 60_000, "ms", "pause between two tests of one server by one person who does not configure it: each makes a connection";
    TAGS = 20, up to 20, "tags", "tags of a server";
    TAG_CHARS = 40, up to 40, "characters", "one tag of a server";

    PACING_MOST_MS = 86_400_000, up to 86_400_000, "ms", "longest pause, cool-down or wait that a group of calls keeps: a peer's words must not shut a server for ever";
    // Servers of ours.
    DELEGATION_SECONDS = 30, up to 60, "s", "a token that tells a server of ours for whom one request is made: it is made right before the request leaves";
    DELEGATION_SWEEP_SECONDS = 60, up to 600, "s", "how often tokens that were used are forgotten";
    DELEGATION_KEEP_SECONDS = 600, up to 3_600, "s", "that such a token was used is remembered for this long after its end: clocks of nodes may differ by less";
    COMPANY_KEYS_SECONDS = 600, up to 3_600, "s", "metadata and keys of a company's issuer are asked anew when they are this old: a key that was withdrawn is good for no longer";
    COMPANY_KEYS_STALE_SECONDS = 3_600, up to 14_400, "s", "and kept for so much longer while the issuer cannot be asked";
    COMPANY_KEYS_PATIENCE_MS = 5_000, up to 30_000, "ms", "an issuer whose keys are known from before is waited for";
    COMPANY_KEYS_RENEWAL_SECONDS = 60, up to 600, "s", "an issuer is asked for its keys at most once in this time because of a key that is not known, or after it could not be asked";
    COMPANY_TOKEN_LEEWAY_SECONDS = 30, up to 120, "s", "tokens of a company's issuer are taken for this long after their end and before their beginning: clocks differ";

    COMPANY_SIGN_IN_SECONDS = 600, up to 900, "s", "from the click to the answer of the company's issuer; people look for their second factor";
    COMPANY_SIGN_INS = 10_000, up to 100_000, "sign-ins", "of one tenant that may be under way; whoever comes then waits";
    COMPANY_SIGN_INS_NETWORK = 100, up to 10_000, "sign-ins", "of one tenant that may be under way from one network: nobody keeps the others out";
    COMPANY_SWEEP_SECONDS = 60, up to 600, "s", "how often sign-ins that nobody ended are forgotten";
    COMPANY_NAME_CHARS = 60, up to 60, "characters", "name of a company's sign-in, on its button";
    COMPANY_ROLES = 50, up to 50, "values", "of a claim that give a role";
    COMPANY_AUDIENCES = 10, up to 10, "audiences", "besides its own address that a gateway goes by";
    COMPANY_CLAIM_CHARS = 200, up to 200, "characters", "name or value of a claim";

    // Names and people.
    SUBJECT_CHARS = 255, up to 255, "characters", "the subject that an issuer knows a person by (OpenID Connect Core, section 2)";
    TOOL_ID_CHARS = 36, up to 36, "characters", "id of a tool";
    AGENT_NAME_CHARS = 64, up to 64, "characters", "name of a tool as models see it";
    TITLE_CHARS = 200, up to 200, "characters", "title of a session, project or token";
    EMAIL_CHARS = 254, up to 254, "characters", "an e-mail address (RFC 5321)";
    PASSWORD_CHARS = 1_024, up to 1_024, "characters", "a password; longer ones only cost us time";
    PASSWORD_CHARS_MIN = 8, up to 8, "characters", "shortest password that can be set (NIST SP 800-63B)";
    PASSWORD_HASHES = 2, up to 64, "hashes", "passwords that one process hashes at the same moment: each takes 19 MiB and a core";
    PASSWORD_HASHES_WAITING = 64, up to 1_024, "hashes", "passwords that may wait for their turn to be hashed; one more is refused at once";
    FORM_BODY_BYTES = 65_536, up to 65_536, "bytes", "body of a form of a page: a static secret, each byte of it encoded as three, and a little";
    SIGN_IN_FREE_TRIES = 5, up to 100, "attempts", "in vain before one account has to wait (NIST SP 800-63B, 3.2.2, allows up to 100)";
    SIGN_IN_NETWORK_FREE_TRIES = 50, up to 1_000, "attempts", "in vain before one network (/24, /56) has to wait: an office may share it";
    SIGN_IN_FIRST_WAIT_MS = 1_000, up to 10_000, "ms", "first wait after too many attempts in vain; doubles with each";
    SIGN_IN_MOST_WAIT_MS = 60_000, up to 600_000, "ms", "longest wait of an account: a person must never be kept out";
    SIGN_IN_NETWORK_MOST_WAIT_MS = 900_000, up to 3_600_000, "ms", "longest wait of a network; longer than an account's, so that one network cannot use up an account's turns";
    SIGN_IN_FORGET_SECONDS = 3_600, up to 86_400, "s", "after a pause of this length attempts in vain are forgotten";
    SIGN_IN_KNOWN_DAYS = 30, up to 90, "days", "a network from which an account signed in stays known for this long: others' attempts do not make it wait there";
    WEB_SESSION_IDLE_SECONDS = 28_800, up to 86_400, "s", "a browser session that nobody used for a working day ends";
    WEB_SESSION_SECONDS = 86_400, up to 2_592_000, "s", "a browser session ends after this, however much it is used: whoever permits calls signs in daily (NIST SP 800-63B, 2.2.3)";
    WEB_SESSION_TOUCH_MS = 60_000, up to 300_000, "ms", "the use of a browser session is noted this often at most";
    TOKEN_DAYS = 90, up to 366, "days", "life of an API token unless it asks for another";

    // Permissions.
    QUESTION_EXPIRES_MS = 600_000, up to 600_000, "ms", "a gateway question lives this long after the last contact";
    PERMISSION_WAIT_SECONDS = 600, up to 600, "s", "a caller that cannot be asked in protocol is held this long; also how long the deadline of a call stands still in all while its server has its client asked something";
    QUESTION_POLL_MS = 1_000, up to 1_000, "ms", "a held call looks at its question this often, whatever signals say";
    QUESTION_HOLD_MS = 45_000, up to 600_000, "ms", "a client that came back with its requestState is held this long before it is told once more that the call waits; most clients give up a request after 60 s";
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
    ENDED_SESSIONS = 10_000, up to 100_000, "sessions", "MCP sessions ended by their clients that one process remembers: 40 bytes each";
    REQUEST_ID_BYTES = 256, up to 256, "bytes", "JSON of a request's id; it is part of a key";
    BATCH_MESSAGES = 100, up to 100, "messages", "JSON-RPC messages of one batch (2025-03-26 alone has batches)";
    FORM_FIELDS = 50, up to 50, "fields", "fields of a form that a server wants a person to fill in";
    INPUT_REQUESTS = 20, up to 20, "questions", "questions that a server asks at once";
    INPUT_ROUNDS = 20, up to 20, "rounds", "a server that asks its client again and again gets no answer after so many";
    REQUEST_STATE_BYTES = 65_536, up to 65_536, "bytes", "a server's own requestState, which travels sealed inside ours";
    SUBSCRIBED_RESOURCES = 100, up to 100, "resources", "resources that one subscription names";
    ASKS_RUNNING = 4, up to 64, "requests", "requests without a record (lists, subscriptions) of one person to one server that run at the same moment";
    ASKS_WAITING = 16, up to 1_000, "requests", "such requests that may wait for a slot; one more is refused at once";
    ASK_INTERVAL_MS = 10, up to 60_000, "ms", "pause between the starts of two such requests: 100 in a second are more than any client needs";
    ASK_RECHECK_MS = 1_000, up to 1_000, "ms", "a request that waited longer than this is judged again before it is sent";
    OWN_SESSIONS = 32, up to 256, "sessions", "upstream sessions that the older clients of one person hold with one server; the least used one gives way";
    STREAMS_OPEN = 16, up to 256, "streams", "streams of one person from one server at the same moment";
    PINS_LOOK_MS = 500, up to 15_000, "ms", "a stream looks this often for a change of tools that the server announced; each look is one query";
    IDEMPOTENCY_KEY_CHARS = 128, up to 128, "characters", "an Idempotency-Key";
    IDEMPOTENCY_KEEP_HOURS = 24, up to 24, "h", "a request with a key may be repeated this long";
    IDEMPOTENCY_LEASE_MS = 15_000, up to 15_000, "ms", "a request whose node is silent for this long lets its key go";
    IDEMPOTENCY_HOLD_MS = 100, up to 1_000, "ms", "changes of a request with a key wait this long for their answer, to be saved with it";
    IDEMPOTENCY_RETRY_MS = 1_000, up to 15_000, "ms", "when to come back while the request with the same key still runs";
    IDEMPOTENCY_ANSWER_BYTES = 1_048_576, up to 1_048_576, "bytes", "a longer answer is not kept to be given again";
    CLIENT_HEADER_MS = 75_000, up to 600_000, "ms", "a client's connection without a whole request head for this long is closed; above the 60 s for which load balancers keep idle ones, so that none of them sends to a closing one";
    CLIENT_BODY_MS = 30_000, up to 600_000, "ms", "a request's body may pause for this long";
    CLIENT_CONNECTIONS = 10_000, up to 100_000, "connections", "clients' connections that one process holds; the next ones wait to be accepted";
    RESULT_READ_CHARS = 20_000, up to 100_000, "characters", "one page of a stored result that an agent reads";
    POINTER_CHARS = 1_024, up to 1_024, "characters", "JSON pointer into a stored result";
    IN_FLIGHT_CALLS = 10_000, up to 100_000, "calls", "calls that one process holds at the same time";

    // Leases and timers.
    NODE_LEASE_MS = 10_000, up to 15_000, "ms", "a node that did not renew for this long is dead";
    NODE_HEARTBEAT_MS = 2_500, up to 5_000, "ms", "how often a node renews its lease";
    TICK_MS = 1_000, up to 1_000, "ms", "period of the tick loop";
    REAPER_BATCH = 500, up to 5_000, "rows", "rows that the reaper closes in one go";
    SHUTDOWN_MS = 7_000, up to 60_000, "ms", "calls may finish for this long after SIGTERM; `up` ends within 10 s";
    POSTGRES_STOP_MS = 1_500, up to 60_000, "ms", "the private Postgres may write its checkpoint for this long; then it is stopped at once and recovers when it starts";
    POSTGRES_START_SECONDS = 120, up to 600, "s", "the private Postgres must accept connections by then, a recovery after a crash included";
    POSTGRES_ANSWER_MS = 2_000, up to 10_000, "ms", "the private Postgres, asked whether it lives; one that is busy enough to need longer is asked again";
    POSTGRES_FETCH_SECONDS = 300, up to 3_600, "s", "fetching the 16 MB of Postgres's programs over a slow line";
    POSTGRES_POLL_MS = 25, up to 1_000, "ms", "how often a state of the private Postgres that is waited for is looked at";
    POSTGRES_LOCK_WAIT_MS = 3_000, up to 30_000, "ms", "a killed launcher's lock is freed when the kernel has taken the process apart";
    POSTGRES_ORPHANS_MS = 1_000, up to 10_000, "ms", "processes of Postgres that outlived their first one by this are told to end; most notice by themselves at once";
    POSTGRES_QUIT_MS = 7_000, up to 30_000, "ms", "Postgres that is stopped at once may take this long: its first process gives its children 5 s before it kills them (PostgreSQL documentation, Shutting Down the Server)";
    POSTGRES_WATCH_MS = 200, up to 5_000, "ms", "how often the process of the private Postgres is looked at; it may be no child of ours, so its end is no event for us";
    POSTGRES_HEALTHY_SECONDS = 60, up to 600, "s", "a private Postgres that lived this long is healthy: its next restart waits for nothing";
    POSTGRES_RESTART_MS = 250, up to 10_000, "ms", "pause before the second restart of the private Postgres in a row; doubles with each";
    POSTGRES_RESTART_MOST_MS = 10_000, up to 20_000, "ms", "longest such pause; well below the 30 s in which all is settled after a crash";
    READY_POLL_MS = 50, up to 1_000, "ms", "how often `up` looks whether what it started can be used";
    NODE_FAREWELL_MS = 300, up to 1_000, "ms", "an ending node may take this long to tell the database";
    PARTITION_MONTHS_AHEAD = 6, up to 12, "months", "partitions made ahead";
    TOOL_CALL_KEEP_DAYS = 3, up to 30, "days", "how long call ids are remembered after their execution ended";
    DATABASE_RETRY_MS = 2_000, up to 60_000, "ms", "when to come back while the database is unreachable";
    DATABASE_ACQUIRE_MS = 5_000, up to 60_000, "ms", "who finds no free connection to the database within this time is told that it is away";
    CLOSE_RETRY_MS = 50, up to 2_000, "ms", "pause before closing a call is tried again; grows up to that of the database";
    CLOSE_RETRY_SECONDS = 60, up to 600, "s", "closing a call is tried for this long while the database is away; then the reaper does it";
    DATABASE_PING_AFTER_MS = 1_000, up to 60_000, "ms", "a connection that was idle for longer is tried before it is used: it may have died in an outage";
    DATABASE_CONNECTIONS = 24, up to 200, "connections", "pool of one process";
    JOB_CONCURRENCY = 4, up to 64, "jobs", "discoveries that one worker runs at the same time";
    TICK_LEASE_MS = 30_000, up to 300_000, "ms", "a tick's work ends by then, and another node may take it";
    RECORD_KEEP_DAYS = 2, up to 30, "days", "how long ended nodes, finished jobs and ticks that no version knows any more are remembered, for whoever looks for a cause";
    JOB_TIMEOUT_SECONDS = 100, up to 600, "s", "a job ends by then: a discovery with its connect and initialize";
    JOB_POLL_MS = 1_000, up to 10_000, "ms", "how often a worker looks for jobs; also the pause before a failed one runs again";
    JOB_HEARTBEAT_MS = 5_000, up to 30_000, "ms", "how often a worker says that it lives";
    JOB_HEARTBEATS_MISSED = 4, up to 20, "heartbeats", "after so many a worker's jobs are given to others; must outlast a graceful shutdown";
    JOB_BACKOFF_MS = 2_000, up to 60_000, "ms", "pause before the second attempt of a job; doubles with each";
    JOB_BACKOFF_CEILING_MS = 300_000, up to 3_600_000, "ms", "longest pause between two attempts of a job";
    JOB_ATTEMPTS = 5, up to 20, "attempts", "a job that failed this often is given up";

    // `bailiwick call`.
    CALL_REST_MS = 15_000, up to 60_000, "ms", "one answer of a few rows from the REST API; generous";
    CALL_FAREWELL_MS = 1_000, up to 5_000, "ms", "giving back a session of the older protocol; the result is there already";

    // What `doctor` finds worth a word.
    DOCTOR_LOOK_MS = 5_000, up to 60_000, "ms", "one look of `doctor` at a database, a store or an address";
    DOCTOR_NAMES = 10, up to 100, "names", "names that one line of `doctor` shows; the rest is a number";
    CLOCK_SKEW_MS = 1_000, up to 10_000, "ms", "difference of a node's clock from the database's that `doctor` warns of; ten times as much is a failure (expiry is judged by the node's, leases by the database's)";
    DISK_FREE_BYTES = 2_147_483_648, up to 1_099_511_627_776, "bytes", "less free disk space than this is a warning of `doctor`, less than a tenth a failure";
    NODE_SEEN_SECONDS = 30, up to 300, "s", "nodes that were alive this recently count for `doctor` as running";
    TICK_LATE_SECONDS = 60, up to 3_600, "s", "a tick that has been due for this long is late";
    TICK_FAILING_HOURS = 25, up to 168, "h", "a tick that has not succeeded for this long fails each time: the longest period is a day";
    JOB_STUCK_SECONDS = 300, up to 86_400, "s", "a job that has been due, or held, for this long is stuck; longer than a job with all its attempts at one server takes";
    TOKEN_ENDS_DAYS = 7, up to 90, "days", "`doctor` warns of a token file whose token ends within this time";

    // Content-addressed storage (design: artifacts).
    CAS_INLINE_BYTES = 65_536, up to 65_536, "bytes", "a smaller body sits in Postgres, in the transaction of its invocation";
    CAS_CHUNK_BYTES = 8_388_608, up to 8_388_608, "bytes", "one immutable object of a larger body";

    // Personal connections (design: connections).
    OAUTH_ATTEMPT_SECONDS = 300, up to 300, "s", "from the click to the provider's answer";
    OAUTH_RESULT_SECONDS = 60, up to 60, "s", "from the provider's answer to the person's confirmation";
    OAUTH_ATTEMPTS = 5, up to 5, "attempts", "sign-ins at providers that a person may have under way; one more ends the oldest";
    ATTEMPT_SWEEP_SECONDS = 60, up to 600, "s", "how often sign-ins at providers that are over are deleted";
    OAUTH_SWEEP = 500, up to 5_000, "attempts", "that are over and deleted in one transaction";
    OAUTH_EXCHANGE_GRACE_SECONDS = 120, up to 600, "s", "a sign-in whose code is being exchanged is deleted this long after its end; outlasts the exchange and its saving";
    CREDENTIAL_BYTES = 16_384, up to 16_384, "bytes", "a static secret of a person; it stands in one header";
    REFRESH_MARGIN_SECONDS = 60, up to 600, "s", "a credential is refreshed this long before its end, or a tenth of its life where that is less";
    REFRESH_TIMEOUT_MS = 20_000, up to 60_000, "ms", "one refresh at an authorization server, connecting included";
    RESEAL_BATCH = 500, up to 500, "values", "sealed anew in one transaction of `keys rotate`; it holds their rows for a few ms";
    RESEAL_PASSES = 10, up to 10, "passes", "of `keys rotate` over everything, while rows are held by others or change";
    RESEAL_PAUSE_MS = 500, up to 500, "ms", "before the next pass, where rows were held: transactions are short";
    REFRESH_LEASE_MS = 30_000, up to 120_000, "ms", "nobody else refreshes a credential meanwhile; outlasts the request and its saving";
    REFRESH_WAIT_MS = 35_000, up to 120_000, "ms", "a request waits this long for the refresh that another one makes";
    REFRESH_PATIENCE_MS = 2_000, up to 10_000, "ms", "a request waits no longer where the old credential is still good, or the refresh before failed";
    REFRESH_PAUSE_MS = 5_000, up to 60_000, "ms", "after a refresh that brought nothing nobody tries again; twice as long after each further one";
    REFRESH_PAUSE_CAP_MS = 60_000, up to 600_000, "ms", "longest such pause, unless the provider asks for a longer one";
    REFRESH_POLL_MS = 100, up to 1_000, "ms", "how often it looks, should the hint come from another process";
    CREDENTIAL_TOUCH_MS = 60_000, up to 3_600_000, "ms", "how exact the last use of a credential is noted";

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
const _: () = assert!(
    STDIO_START_MS.default + DISCOVERY_TIMEOUT_MS.default <= JOB_TIMEOUT_SECONDS.default * 1_000
);
// What takes a place is told that there is none, and not that its program is silent.
const _: () = assert!(STDIO_PLACE_MS.default < STDIO_START_MS.default);
// Nobody takes all programs of their tenant, and no tenant those of the next.
const _: () = assert!(2 * STDIO_OWN_PERSON.default <= STDIO_OWN_TENANT.default);
const _: () =
    assert!(2 * STDIO_OWN_TENANT.default + STDIO_SHARED.default <= STDIO_CHILDREN.default);
const _: () = assert!(STDIO_TENANT.default < STDIO_CHILDREN.default);
// `up` ends within 10 s of SIGTERM, its Postgres included.
const _: () =
    assert!(SHUTDOWN_MS.default + NODE_FAREWELL_MS.default + POSTGRES_STOP_MS.default < 10_000);
// mcp__<source>__<toolId> fits the narrowest client.
const _: () = assert!(
    5 + SLUG_IN_TOOL_NAME_CHARS.default + 2 + TOOL_ID_CHARS.default <= AGENT_NAME_CHARS.default
);
// What is forgotten must have been waited out.
const _: () =
    assert!(SIGN_IN_NETWORK_MOST_WAIT_MS.default < SIGN_IN_FORGET_SECONDS.default * 1_000);
const _: () = assert!(SIGN_IN_MOST_WAIT_MS.default < SIGN_IN_NETWORK_MOST_WAIT_MS.default);
// A session that is used is not idle.
const _: () = assert!(WEB_SESSION_TOUCH_MS.default < WEB_SESSION_IDLE_SECONDS.default * 1_000 / 10);
const _: () = assert!(WEB_SESSION_IDLE_SECONDS.default < WEB_SESSION_SECONDS.default);
// Ending programs, kill included, fits the time that a stop has.
const _: () = assert!(2 * STDIO_GRACE_MS.default < SHUTDOWN_MS.default);
// A lease outlasts the request that it is for, and who waits for it outlasts the lease.
const _: () = assert!(REFRESH_TIMEOUT_MS.default + 5_000 < REFRESH_LEASE_MS.default);
const _: () = assert!(REFRESH_LEASE_MS.default < REFRESH_WAIT_MS.default);
// What one call may send us fits the body that carries it.
const _: () = assert!(INPUT_BYTES.default < GATEWAY_BODY_BYTES.default);
