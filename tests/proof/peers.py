"""Every real client against every real server, through the gateway and directly."""

import copy
import json

import clients
import table
from house import Failed, free_port, refusal

MOST_TOOLS = 1_000
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
    "inspector": "the client looks at the list before it calls: what is unknown, or to the inspector what "
                 "does not fit, never reaches a server",
    "limit": f"the first {MOST_TOOLS:,} tools are listed (limits.md)",
    "retold": "compared as LangChain tells it, which shows no `_meta`",
}


class Server:
    """One row of the table, as this house runs it."""

    def __init__(self, house, slug, label, run, cases, invalid, transport="http", host="127.0.0.1",
                 env=None, conditional=(), writable=()):
        self.slug, self.label, self.transport = slug, label, transport
        self.port = free_port()
        filled = house.filled(port=self.port)
        self.command = [filled(word) for word in run]
        self.env = {name: filled(value) for name, value in (env or {}).items()}
        self.writable = [filled(path) for path in writable]
        self.cases = [(what, tool, filled(arguments)) for what, tool, arguments in cases]
        self.invalid = (invalid[0], filled(invalid[1]))
        self.conditional = set(conditional)
        self.url = f"http://{host}:{self.port}/{'sse' if transport == 'sse' else 'mcp'}"
        # Tools by their own names: as agents call them.
        self.id, self.names = None, {}
        # It offers more tools than a server may have.
        self.cut = False

    def start(self, house):
        """A stdio server is started by whoever asks it."""
        if self.transport != "stdio":
            house.peer(self.slug, self.command, self.port, self.env)

    def plan(self):
        """How a client reaches it directly."""
        if self.transport == "stdio":
            return {"transport": "stdio", "command": self.command, "env": self.env, "headers": {}}
        return {"transport": self.transport, "url": self.url, "headers": {}}

    def form(self):
        """How a superadmin configures it."""
        if self.transport == "stdio":
            command, *args = self.command
            return {"transport": "stdio", "command": command, "args": args, "env": self.env}
        return {"transport": self.transport, "url": self.url}


def servers(house):
    """All of the table, started."""
    house.furnish()
    rows = [Server(house, **row) for row in table.SERVERS]
    for row in rows:
        row.start(house)
    return rows


def register(service, server):
    row = service.register(server.slug, **server.form())
    server.id = row["id"]
    tools = service.all(f"/api/mcp/servers/{server.id}/tools")
    if len(tools) != row["toolCount"]:
        raise Failed(f"{len(tools)} tools are listed, {row['toolCount']} were found")
    if len(tools) == MOST_TOOLS:
        server.cut = True
    odd = [f"{tool['name']}: {tool['problem']}" for tool in tools if tool["pin"] != "approved"]
    if odd:
        raise Failed("; ".join(odd))
    server.names = {tool["name"]: tool["agentName"] for tool in tools}
    return len(tools)


def same(direct, passed, notes, where, retold=False):
    """Whether a result is the direct one and the id of its invocation."""
    direct, passed = copy.deepcopy(direct), copy.deepcopy(passed)
    if retold:
        notes.add("retold")
    else:
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
    if server.cut:
        notes.add("limit")
    elif missing - server.conditional:
        raise Failed(f"not discovered: {missing}")
    elif missing:
        notes.add("capabilities")
    for name, tool in expected.items():
        if tool.pop("execution", None) is not None:
            notes.add("tasks")
        if by_name.pop(name, None) != tool:
            found = next((one for one in passed if one["name"] == name), None)
            raise Failed(f"tools/list, {name}: directly {brief(tool)}, through the gateway {brief(found)}")
    by_name.pop("result_read", None)
    if by_name:
        raise Failed(f"tools/list has more: {sorted(by_name)}")


def brief(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 700 else text[:700] + "…"


def pair(house, service, server, client):
    """One cell of the table: the notes that it needs."""
    notes = set()
    kind = clients.kind(client)
    looks_first, retold = kind in clients.LOOKS_FIRST, kind in clients.RETOLD
    # A process for each call: some are enough.
    cases = server.cases[:5] if kind == "inspector" else server.cases
    calls = [{"tool": tool, "arguments": arguments, "progress": "progress" in label}
             for label, tool, arguments in cases]
    tool, arguments = server.invalid
    calls += [{"tool": tool, "arguments": arguments}, {"tool": "no_such_tool", "arguments": {}}]
    session = service.session([server.id])
    through = {
        "url": service.gateway(session), "headers": service.headers(), "list": True,
        "calls": [{**call, "tool": server.names.get(call["tool"], "mcp__x__no_such_tool")}
                  for call in calls],
    }
    direct = clients.run(house, client, {**server.plan(), "list": True, "calls": calls})
    passed = clients.run(house, client, through)
    same_list(server, direct["tools"], passed["tools"], notes)

    for (label, *_), one, other in zip(cases, direct["ended"], passed["ended"]):
        if "error" in one or "raised" in one:
            check_error(label, one, other)
            notes.add("error")
        elif "result" not in other:
            raise Failed(f"{label}: directly a result, through the gateway {brief(other)}")
        else:
            same(one["result"], other["result"], notes, label, retold)
        if one.get("progress") and not other["progress"]:
            notes.add("progress")

    invalid, unknown = passed["ended"][-2:]
    if kind != "inspector" and refusal(invalid.get("result")).get("code") != "INVALID_INPUT":
        raise Failed(f"invalid input: {brief(invalid)}")
    if looks_first:
        notes.add("inspector")
        if "result" in unknown:
            raise Failed(f"an unknown tool: {brief(unknown)}")
    else:
        error = unknown.get("error") or {}
        if error.get("code") != -32602 or (error.get("data") or {}).get("code") != "NOT_FOUND":
            raise Failed(f"an unknown tool: {brief(unknown)}")
    reached = None if kind == "inspector" else len(calls) - (1 if looks_first else 0)
    check_rows(service.rows(session), server, passed["ended"], reached)
    return notes


def check_error(label, direct, passed):
    """A JSON-RPC error of the server comes as the refusal of a call that failed, with its words."""
    error = refusal(passed.get("result"))
    said = (direct.get("error") or {}).get("message") or direct.get("raised", "").partition(": ")[2]
    if error.get("code") != "TOOL_ERROR" or not said or said not in error.get("untrusted", ""):
        raise Failed(f"{label}: directly {brief(direct)}, through the gateway {brief(passed)}")


def check_rows(rows, server, ended, reached):
    """Each call that reached the gateway left its row, final and under its own id."""
    ids = [((one.get("result") or {}).get("_meta") or {}).get(INVOCATION) for one in ended]
    ids = [one for one in ids if one]
    known = {row["id"]: row for row in rows}
    if reached is not None and len(rows) != reached:
        raise Failed(f"{reached} calls left {len(rows)} rows")
    for one in ids:
        if one not in known:
            raise Failed(f"invocation {one} has no row")
    unfinished = [row for row in rows if row["status"] not in ("succeeded", "failed")]
    if unfinished:
        raise Failed(f"rows are not final: {brief(unfinished)}")
    foreign = [row for row in rows if row["sourceId"] not in (server.id, None)]
    if foreign:
        raise Failed(f"rows of another server: {brief(foreign)}")
