"""Every real client against every real server, through the gateway and directly."""

import copy
import json

import clients
from house import Failed, free_port

INVOCATION = "bailiwick/invocationId"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"

# What is different and may be, with the reason.
NOTES = {
    "era": "the client speaks another protocol version with us than the server does: `resultType` "
           f"and `_meta[\"{SERVER_INFO}\"]` exist in 2026-07-28 alone, and are passed on as they came",
    "progress": "progress notifications are not relayed on shared connections (http-api.md: only the "
                "pass-through form has them); the result is the same",
    "tasks": "`execution` of a definition is left out: a task of the server cannot be reached through us",
    "capabilities": "the server lists some tools to clients alone that declare roots, sampling or "
                    "elicitation; shared connections declare none (http-api.md)",
    "error": "a JSON-RPC error of the server is answered as a result with `isError`, our code and the "
             "server's words under `untrusted`",
    "inspector": "the inspector looks at the list before it calls: what is unknown or does not fit "
                 "never reaches a server",
}


class Server:
    def __init__(self, slug, label, cases, invalid, url=None):
        self.slug, self.label, self.cases, self.invalid, self.url = slug, label, cases, invalid, url
        # Tools by their own names: as agents call them.
        self.id, self.names = None, {}
        # Listed to clients with capabilities alone.
        self.conditional = set()


def sdk_cases():
    return [
        ("text", "echo", {"message": "Grüße, 世界 \u2028 \"x\""}),
        ("integer", "add", {"a": 2, "b": 40}),
        ("structured", "weather", {"city": "Oslo"}),
        ("image", "picture", {}),
        ("list", "plain", {}),
        ("optional left out", "unstructured", {}),
        ("null", "unstructured", {"x": None}),
        ("tool error", "fail", {"words": "no"}),
        ("300 kB", "big", {"size": 300_000}),
        ("long, progress", "count", {"to": 4}),
    ]


def servers(house):
    """Starts them all."""
    started = []

    def add(slug, label, command, cases, invalid, port=None, env=None, host="127.0.0.1"):
        server = Server(slug, label, cases, invalid)
        if port is None:
            house.start(slug, command)
            server.url = house.ready_url(slug)
        else:
            house.peer(slug, command, port, env)
            server.url = f"http://{host}:{port}/mcp"
        started.append(server)

    port = free_port()
    add("everything", "server-everything 2026.8.31", [house.rig / "run.sh", "everything",
        "streamableHttp"], [
        ("text", "echo", {"message": "Grüße, 世界"}),
        ("numbers", "get-sum", {"a": 2.5, "b": 40}),
        ("structured", "get-structured-content", {"location": "Chicago"}),
        ("image", "get-tiny-image", {}),
        ("annotations", "get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("resource links", "get-resource-links", {"count": 3}),
        ("long, progress", "trigger-long-running-operation", {"duration": 1, "steps": 4}),
    ], ("get-sum", {"a": "x"}), port, {"PORT": str(port)}, "localhost")
    started[-1].conditional = {
        "get-roots-list", "trigger-elicitation-request", "trigger-url-elicitation",
        "trigger-sampling-request", "simulate-research-query", "trigger-sampling-request-async",
        "trigger-elicitation-request-async"}

    port = free_port()
    sdk1 = house.here / "servers" / "sdk1.py"
    add("py1", "python mcp 1.30, sessions and SSE", [house.python("mcp1"), sdk1, port, "stateful"],
        sdk_cases(), ("add", {"a": "x"}), port, host="localhost")
    port = free_port()
    add("py1json", "python mcp 1.30, stateless JSON", [house.python("mcp1"), sdk1, port,
        "stateless"], sdk_cases(), ("add", {"a": "x"}), port)
    port = free_port()
    sdk2 = house.here / "servers" / "sdk2.py"
    add("py2", "python mcp 2.3, SSE", [house.python("mcp2"), sdk2, port], sdk_cases(),
        ("add", {"a": "x"}), port)
    port = free_port()
    add("py2json", "python mcp 2.3, JSON", [house.python("mcp2"), sdk2, port, "json"], sdk_cases(),
        ("add", {"a": "x"}), port, host="localhost")
    port = free_port()
    add("fast", "fastmcp 4.2, odd schemas, 46 tools", [house.rig / "run.sh", "odd-schemas", "http",
        port], [
        ("recursive schema", "tree", {"node": {"v": 1, "kids": [{"v": 2, "kids": []}]}}),
        ("oneOf", "union", {"x": {"kind": "a", "x": 1}}),
        ("anyOf null", "opt", {"a": None, "tags": {"t": [1, 2]}}),
        ("no arguments", "noargs", {}),
        ("long name", "weird.name-with/slash_" + "x" * 60, {"q": "ツ"}),
        ("200 kB", "big", {"n": 200_000}),
    ], ("union", {"x": {"kind": "c"}}), port, {"N": "40"})
    add("demo", "bailiwick-demo (rmcp)", [house.bin / "bailiwick-demo"], [
        ("text", "greet", {"name": "Ada"}),
        ("structured", "add", {"a": 2, "b": 40}),
        ("protocol error", "add", {"a": 9223372036854775807, "b": 1}),
        ("long, progress", "slow_count", {"to": 4, "pause_ms": 150}),
    ], ("add", {"a": "x", "b": 1}))
    return started


def register(service, server):
    row = service.register(server.slug, server.url)
    server.id = row["id"]
    tools = service.all(f"/api/mcp/servers/{server.id}/tools")
    if len(tools) != row["toolCount"]:
        raise Failed(f"{len(tools)} tools are listed, {row['toolCount']} were found")
    odd = [f"{tool['name']}: {tool['problem']}" for tool in tools if tool["pin"] != "approved"]
    if odd:
        raise Failed("; ".join(odd))
    server.names = {tool["name"]: tool["agentName"] for tool in tools}
    return len(tools)


def same(direct, passed, notes, where):
    """Whether a result is the direct one and the id of its invocation."""
    direct, passed = copy.deepcopy(direct), copy.deepcopy(passed)
    meta = passed.get("_meta") or {}
    if not isinstance(meta.pop(INVOCATION, None), str):
        raise Failed(f"{where}: no _meta[{INVOCATION!r}]: {brief(passed)}")
    if not meta:
        passed.pop("_meta", None)
    if direct == passed:
        return
    for one in (direct, passed):
        one.pop("resultType", None)
        (one.get("_meta") or {}).pop(SERVER_INFO, None)
        if one.get("_meta") == {}:
            del one["_meta"]
    if direct != passed:
        raise Failed(f"{where}: directly {brief(direct)}, through the gateway {brief(passed)}")
    notes.add("era")


def same_list(server, direct, passed, notes):
    by_name = {tool["name"]: tool for tool in passed}
    if len(by_name) != len(passed):
        raise Failed("tools/list has a name twice")
    expected = {server.names[tool["name"]]: {**tool, "name": server.names[tool["name"]]}
                for tool in direct if tool["name"] in server.names}
    missing = {tool["name"] for tool in direct if tool["name"] not in server.names}
    if missing - server.conditional:
        raise Failed(f"not discovered: {missing}")
    if missing:
        notes.add("capabilities")
    for name, tool in expected.items():
        if tool.pop("execution", None) is not None:
            notes.add("tasks")
        if by_name.pop(name, None) != tool:
            found = next((one for one in passed if one["name"] == name), None)
            raise Failed(f"tools/list, {name}: directly {brief(tool)}, through the gateway {brief(found)}")
    if by_name:
        raise Failed(f"tools/list has more: {sorted(by_name)}")


def brief(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 700 else text[:700] + "…"


def pair(house, service, server, client):
    """One cell of the table: the notes that it needs."""
    notes = set()
    inspector = clients.CLIENTS[client][0] == "inspector"
    # A process for each call: some are enough.
    cases = server.cases[:5] if inspector else server.cases
    calls = [{"tool": tool, "arguments": arguments, "progress": "progress" in label}
             for label, tool, arguments in cases]
    tool, arguments = server.invalid
    calls += [{"tool": tool, "arguments": arguments}, {"tool": "no_such_tool", "arguments": {}}]
    plan = {"url": server.url, "headers": {}, "list": True, "calls": calls}
    session = service.session([server.id])
    through = {
        "url": service.gateway(session), "headers": service.headers(), "list": True,
        "calls": [{**call, "tool": server.names.get(call["tool"], "mcp__x__no_such_tool")}
                  for call in calls],
    }
    direct = clients.run(house, client, plan)
    passed = clients.run(house, client, through)
    same_list(server, direct["tools"], passed["tools"], notes)

    for (label, *_), one, other in zip(cases, direct["ended"], passed["ended"]):
        if "error" in one or "raised" in one:
            check_error(label, one, other)
            notes.add("error")
        elif "result" not in other:
            raise Failed(f"{label}: directly a result, through the gateway {brief(other)}")
        else:
            same(one["result"], other["result"], notes, label)
        if one.get("progress") and not other["progress"]:
            notes.add("progress")

    invalid, unknown = passed["ended"][-2:]
    if inspector:
        notes.add("inspector")
        if "result" in unknown:
            raise Failed(f"an unknown tool: {brief(unknown)}")
    else:
        refusal = (invalid.get("result") or {}).get("structuredContent") or {}
        if (refusal.get("error") or {}).get("code") != "INVALID_INPUT":
            raise Failed(f"invalid input: {brief(invalid)}")
        error = unknown.get("error") or {}
        if error.get("code") != -32602 or (error.get("data") or {}).get("code") != "NOT_FOUND":
            raise Failed(f"an unknown tool: {brief(unknown)}")
    check_rows(service, session, server, passed["ended"], inspector)
    return notes


def check_error(label, direct, passed):
    """A JSON-RPC error of the server comes as the refusal of a call that failed, with its words."""
    error = ((passed.get("result") or {}).get("structuredContent") or {}).get("error") or {}
    said = (direct.get("error") or {}).get("message")
    if error.get("code") != "TOOL_ERROR" or not said or said not in error.get("untrusted", ""):
        raise Failed(f"{label}: directly {brief(direct)}, through the gateway {brief(passed)}")


def check_rows(service, session, server, ended, inspector):
    """Each call that reached the gateway left its row, final and under its own id."""
    rows = service.rows(session)
    ids = [((one.get("result") or {}).get("_meta") or {}).get(INVOCATION) for one in ended]
    ids = [one for one in ids if one]
    known = {row["id"]: row for row in rows}
    if not inspector and len(rows) != len(ended):
        raise Failed(f"{len(ended)} calls left {len(rows)} rows")
    for one in ids:
        if one not in known:
            raise Failed(f"invocation {one} has no row")
    unfinished = [row for row in rows if row["status"] not in ("succeeded", "failed")]
    if unfinished:
        raise Failed(f"rows are not final: {brief(unfinished)}")
    foreign = [row for row in rows if row["sourceId"] not in (server.id, None)]
    if foreign:
        raise Failed(f"rows of another server: {brief(foreign)}")
