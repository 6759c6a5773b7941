"""Which servers are proven: each row of docs/compatibility.md. The columns are clients.CLIENTS.

`run` starts a server that listens, and is what a stdio server is; `{port}`, `{work}`, `{rig}`, `{here}`,
`{bin}`, `{node}`, `{npm}`, `{scripts}`, `{servers}` and `{<venv>}` in it, in `env` and in the arguments of
calls stand for what the house has. `cases` are calls that must end alike with and without us.
"""

# The pairs that are not tried, with the reason: (client, server) → words.
APART = {}

EVERYTHING = {
    "cases": [
        ("text", "echo", {"message": "Grüße, 世界"}),
        ("numbers", "get-sum", {"a": 2.5, "b": 40}),
        ("structured", "get-structured-content", {"location": "Chicago"}),
        ("image", "get-tiny-image", {}),
        ("annotations", "get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("resource links", "get-resource-links", {"count": 3}),
        ("long, progress", "trigger-long-running-operation", {"duration": 1, "steps": 4}),
    ],
    "invalid": ("get-sum", {"a": "x"}),
    # Listed to clients alone that declare roots, sampling or elicitation.
    "conditional": {
        "get-roots-list", "trigger-elicitation-request", "trigger-url-elicitation",
        "trigger-sampling-request", "simulate-research-query", "trigger-sampling-request-async",
        "trigger-elicitation-request-async"},
}

SDK = {
    "cases": [
        ("text", "echo", {"message": "Grüße, 世界 \u2028 \"x\""}),
        ("integer", "add", {"a": 2, "b": 40}),
        ("structured", "weather", {"city": "Oslo"}),
        ("image", "picture", {}),
        ("tool error", "fail", {"words": "no"}),
        ("300 kB", "big", {"size": 300_000}),
        ("long, progress", "count", {"to": 4}),
    ],
    "invalid": ("add", {"a": "x"}),
}

PYTHON = {
    **SDK,
    "cases": SDK["cases"] + [
        ("list", "plain", {}),
        ("optional left out", "unstructured", {}),
        ("null", "unstructured", {"x": None}),
    ],
}

ODD = {
    "cases": [
        ("recursive schema", "tree", {"node": {"v": 1, "kids": [{"v": 2, "kids": []}]}}),
        ("oneOf", "union", {"x": {"kind": "a", "x": 1}}),
        ("anyOf null", "opt", {"a": None, "tags": {"t": [1, 2]}}),
        ("no arguments", "noargs", {}),
        ("long name", "weird.name-with/slash_" + "x" * 60, {"q": "ツ"}),
        ("200 kB", "big", {"n": 200_000}),
    ],
    "invalid": ("union", {"x": {"kind": "c"}}),
}

# What it remembers, nobody changes: clients come one after the other, to one process of ours.
MEMORY = {
    "cases": [
        ("structured", "read_graph", {}),
        ("nothing found", "search_nodes", {"query": "nobody"}),
        ("a list", "open_nodes", {"names": ["a", "b"]}),
    ],
    "invalid": ("open_nodes", {"names": 5}),
}

FILES = {
    "cases": [
        ("text", "read_text_file", {"path": "{work}/files/hello.txt"}),
        ("a part", "read_text_file", {"path": "{work}/files/hello.txt", "head": 1}),
        ("list", "list_directory", {"path": "{work}/files"}),
        ("image", "read_media_file", {"path": "{work}/files/pixel.png"}),
        ("forbidden", "read_text_file", {"path": "/etc/hostname"}),
    ],
    "invalid": ("read_text_file", {"path": 5}),
}

GIT = {
    "cases": [
        ("text", "git_status", {"repo_path": "{work}/files/repository"}),
        ("log", "git_log", {"repo_path": "{work}/files/repository", "max_count": 1}),
        ("show", "git_show", {"repo_path": "{work}/files/repository", "revision": "HEAD"}),
        ("no repository", "git_status", {"repo_path": "{work}/nowhere"}),
    ],
    "invalid": ("git_status", {"repo_path": 5}),
}

TIME = {
    "cases": [("structured text", "convert_time", {
        "source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
        ("unknown zone", "get_current_time", {"timezone": "Nowhere/Else"})],
    "invalid": ("get_current_time", {"timezone": 5}),
}

FETCH = {
    "cases": [("nobody answers", "fetch", {"url": "http://127.0.0.1:1/"})],
    "invalid": ("fetch", {"url": "http://127.0.0.1:1/", "max_length": "x"}),
}

DEMO = {
    "cases": [
        ("text", "greet", {"name": "Ada"}),
        ("structured", "add", {"a": 2, "b": 40}),
        ("protocol error", "add", {"a": 9223372036854775807, "b": 1}),
        ("long, progress", "slow_count", {"to": 4, "pause_ms": 150}),
    ],
    "invalid": ("add", {"a": "x", "b": 1}),
}

SERVERS = [
    {"slug": "everything", "label": "server-everything 2026.8.31", "host": "localhost",
     "run": ["{rig}/run.sh", "everything", "streamableHttp"], "env": {"PORT": "{port}"}, **EVERYTHING},
    {"slug": "everythingsse", "label": "server-everything, SSE", "transport": "sse", "host": "localhost",
     "run": ["{rig}/run.sh", "everything", "sse"], "env": {"PORT": "{port}"}, **EVERYTHING},
    {"slug": "everythingstdio", "label": "server-everything, stdio", "transport": "stdio",
     "run": ["{node}", "{npm}/@modelcontextprotocol/server-everything/dist/index.js", "stdio"],
     **EVERYTHING},
    {"slug": "files", "label": "server-filesystem 2026.8.31, stdio", "transport": "stdio",
     "run": ["{node}", "{npm}/@modelcontextprotocol/server-filesystem/dist/index.js", "{work}/files"],
     "writable": ["{work}/files"], **FILES},
    {"slug": "memory", "label": "server-memory 2026.8.31, stdio", "transport": "stdio",
     "run": ["{node}", "{npm}/@modelcontextprotocol/server-memory/dist/index.js"],
     "env": {"MEMORY_FILE_PATH": "{work}/files/memory.json"}, "writable": ["{work}/files"], **MEMORY},
    {"slug": "supergateway", "label": "supergateway 4.0 (server-memory), SSE", "transport": "sse",
     "host": "localhost", "env": {"MEMORY_FILE_PATH": "{work}/supergateway.json"},
     "run": ["{rig}/run.sh", "supergateway", "--stdio", "{rig}/run.sh memory", "--outputTransport", "sse",
             "--port", "{port}"], **MEMORY},
    {"slug": "fetch", "label": "mcp-server-fetch, stdio", "transport": "stdio",
     "run": ["{servers}/mcp-server-fetch", "--ignore-robots-txt"], **FETCH},
    {"slug": "time", "label": "mcp-server-time, stdio", "transport": "stdio",
     "run": ["{servers}/mcp-server-time", "--local-timezone", "UTC"], **TIME},
    {"slug": "git", "label": "mcp-server-git, stdio", "transport": "stdio",
     "run": ["{work}/files/git-server", "{servers}/mcp-server-git", "--repository", "{work}/files/repository"],
     "writable": ["{work}/files"], **GIT},
    {"slug": "py1", "label": "python mcp 1.30, sessions and SSE", "host": "localhost",
     "run": ["{mcp1}/python", "{here}/servers/sdk1.py", "{port}", "stateful"], **PYTHON},
    {"slug": "py1json", "label": "python mcp 1.30, stateless JSON",
     "run": ["{mcp1}/python", "{here}/servers/sdk1.py", "{port}", "stateless"], **PYTHON},
    {"slug": "py2", "label": "python mcp 2.3, SSE",
     "run": ["{mcp2}/python", "{here}/servers/sdk2.py", "{port}"], **PYTHON},
    {"slug": "py2json", "label": "python mcp 2.3, JSON", "host": "localhost",
     "run": ["{mcp2}/python", "{here}/servers/sdk2.py", "{port}", "json"], **PYTHON},
    {"slug": "ts1", "label": "TypeScript SDK 1.32, sessions",
     "run": ["{node}", "{scripts}/sdk1.mjs", "{port}"], **SDK},
    {"slug": "ts2", "label": "TypeScript SDK 2.0", "host": "localhost",
     "run": ["{node}", "{scripts}/sdk2.mjs", "{port}"], **SDK},
    {"slug": "fast", "label": "fastmcp 4.2, odd schemas, 46 tools",
     "run": ["{rig}/run.sh", "odd-schemas", "http", "{port}"], "env": {"N": "40"}, **ODD},
    {"slug": "fastsse", "label": "fastmcp 4.2, odd schemas, SSE with CRLF", "transport": "sse",
     "run": ["{rig}/run.sh", "odd-schemas", "sse", "{port}"], "env": {"N": "0"}, **ODD},
    {"slug": "thousand", "label": "fastmcp 4.2, 1,006 tools",
     "run": ["{rig}/run.sh", "odd-schemas", "http", "{port}"], "env": {"N": "1000"}, **ODD},
    {"slug": "demo", "label": "bailiwick-demo (rmcp)",
     "run": ["{bin}/bailiwick-demo", "--listen", "127.0.0.1:{port}"], **DEMO},
    {"slug": "demostdio", "label": "bailiwick-demo (rmcp), stdio", "transport": "stdio",
     "run": ["{bin}/bailiwick-demo", "--stdio"], **DEMO,
     # Without the integer of 64 bits: mcp-remote, which stands in the way to us alone, writes another.
     "cases": [case for case in DEMO["cases"] if case[0] != "protocol error"]},
]
