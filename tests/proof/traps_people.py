"""Bug reports about people, tenants, approval, and programs."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

from bugs import KIN, result_of
from house import Failed, Service, get, refusal, wait
from peers import brief
from raw import VERSIONS, Raw

# Programs that the operator's list must hold, as rows of table.py: they print what is no message.
NOISE = {
    "hello": "echo hello",
    "json": "echo '{\"level\":\"info\"}'; echo 17; echo null; echo '[]'; echo '{\"jsonrpc\":\"2.0\"}'",
    "bytes": "printf '\\377\\376 \\033[31mred\\033[0m\\r\\n\\n\\357\\273\\277\\n'",
    "long": "head -c 3000000 /dev/zero | tr '\\0' x; echo",
    "later": "(for n in 1 2 3 4 5; do sleep 0.3; echo tick $n; done) &",
    "stderr": "head -c 20000000 /dev/zero | tr '\\0' e >&2",
}
MEMORY = '"{node}" "{npm}/@modelcontextprotocol/server-memory/dist/index.js"'
PROGRAMS = [
    {"slug": f"noise{name}", "label": f"server-memory after `{noise}`", "transport": "stdio", "cases": [], "invalid": ("", {}),
     "run": ["/bin/bash", "-c", f"{noise}\nexec {MEMORY}"], "env": {"MEMORY_FILE_PATH": "{work}/files/noise.json"},
     "writable": ["{work}/files"]}
    for name, noise in NOISE.items()
]


def entries(bugs):
    kin = bugs.kin
    yield "D9", "tenant isolation", "two people of a tenant, a token each: sessions, rows, questions and ids of the other are 404", lambda: foreign(bugs)
    yield "D9", "tenant isolation", "two tenants with the same slug, URL and variable name: each its own header and upstream session", lambda: tenants(bugs)
    yield "E23", "tenant isolation", "two people, pass-through form: upstream sessions of their own; the other's Mcp-Session-Id is 404", lambda: own_sessions(bugs)
    yield "D15", "approval", "a call of each kind under ask: the journal of the server before, after, and on a no", lambda: asked(bugs)
    yield "D15", "approval", KIN + "a batch, the pass-through form, an Inspector call with an agent's token, a hint that says read-only", lambda: no_way_round(bugs)
    yield "E21", "health check", KIN + "discovery meets 401, 403, 429, 503, a cut and HTML: tools, pins and calls stay", lambda: health(kin)
    yield "E27", "stdio noise", "`bash -c 'echo hello; exec … memory'`; " + KIN + "JSON that is no message, bytes, 3 MB in one line, lines between answers, "\
        "20 MB on stderr", lambda: noise(bugs)
    yield "E28", "stdio children", "kill -9 of the service while programs run", lambda: orphans(bugs)


class Person(Service):
    """Somebody at the same service: REST by one token, calls by another."""

    def __init__(self, bugs, email, tenant=None):
        service = bugs.service
        self.house, self.url, self.dir = bugs.house, service.url, service.dir
        at = ["--tenant", tenant] if tenant else []
        command = [bugs.house.bin / "bailiwick", "--data-dir", service.dir]

        def run(*more, text=None):
            done = subprocess.run([*command, *more], input=text, text=True, capture_output=True)
            if done.returncode:
                raise Failed(f"{more}: {done.stderr[-300:]}")
            return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""

        role = "superadmin" if tenant else "member"
        if tenant:
            run("tenant", "create", tenant)
        run("user", "create", email, *at, "--role", role, "--password-stdin", text="a long password\n")
        scopes = "api:read,api:write,approve" + (",admin" if tenant else "")
        self.admin = run("token", "create", "--user", email, *at, "--scopes", scopes)
        self.agent = run("token", "create", "--user", email, *at, "--scopes", "mcp:call,api:read")


def person(bugs, who="ann"):
    if who not in bugs.__dict__:
        tenant = "other" if who == "zoe" else None
        bugs.__dict__[who] = Person(bugs, f"{who}@example.org", tenant)
    return bugs.__dict__[who]


def for_all(bugs, rows):
    bugs.service.api("PATCH", "/api/tenant", {"enabledSourceIds": [row["id"] for row in rows]})


def client(somebody, session, version="2025-11-25", query=""):
    one = Raw(somebody.gateway(session) + query, version, somebody.headers())
    one.begin()
    return one


def foreign(bugs):
    kin, root, ann = bugs.kin, bugs.service, person(bugs)
    row = kin.register("plain")
    get(f"{kin.url}/__reset")
    for_all(bugs, [row])
    mine = ann.session(None, "ask_for_dangerous")
    one = client(ann, mine)
    name = kin.tools(row)["echo"]["agentName"]
    threading.Thread(target=lambda: one.call(name, {"q": "secret"}), daemon=True).start()
    question = wait("the question", lambda: (ann.api("GET", f"/api/permission-requests?sessionId={mine}&state=pending")["items"] or [None])[0])
    invocation = ann.rows(mine)[0]["id"]
    tried = {}
    for path in (f"/api/sessions/{mine}", f"/api/sessions/{mine}/events"):
        tried[path.replace(mine, "S")] = root.ask("GET", path)[0]
    bob = person(bugs, "bob")
    for path in (f"/api/sessions/{mine}/mcp/invocations/{invocation}", f"/api/sessions/{mine}/mcp/invocations",
                 f"/api/sessions/{mine}/permission-authorizations"):
        tried[path.replace(mine, "S").replace(invocation, "I")] = bob.ask("GET", path)[0]
    tried["decision"] = root.ask("POST", f"/api/permission-requests/{question['id']}/decision", {"decision": "allow_once"})[0]
    stranger = Raw(ann.gateway(mine), "2025-11-25", root.headers())
    tried["POST /mcp/S"] = stranger.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}).status
    taken = Raw(root.gateway(root.session([row["id"]])), "2025-11-25", root.headers())
    taken.session = one.session
    tried["another's Mcp-Session-Id"] = taken.ask("tools/list").status
    pending = kin.sent("plain")
    ann.api("POST", f"/api/permission-requests/{question['id']}/decision", {"decision": "deny"})
    if set(tried.values()) != {404} or pending:
        raise Failed(f"{tried}, {pending}")
    return f"{len(tried)} of {len(tried)} are 404, all but its audit for a superadmin too; nothing was sent"


def tenants(bugs):
    kin, root, zoe = bugs.kin, bugs.service, person(bugs, "zoe")
    get(f"{kin.url}/__reset")
    made, ended = [], {}
    for who, key in ((root, "key-of-one"), (zoe, "key-of-two")):
        who.api("PUT", "/api/tenant/variables/KEY", {"value": key, "hosts": ["127.0.0.1"]})
        row = who.register("shared", f"{kin.url}/session404", headers={"X-Api-Key": "$KEY"}, authMode="shared_headers")
        made.append((who, row, key))
    for who, row, key in made:
        tools = who.api("GET", f"/api/mcp/servers/{row['id']}/tools")["items"]
        answer = client(who, who.session([row["id"]])).call(tools[0]["agentName"], {"q": key})
        ended[key] = result_of(answer)
    calls = {entry["params"]["arguments"]["q"]: entry["h"] for entry in kin.sent("session404")}
    wrong = [key for key in ended if calls[key].get("x-api-key") != key]
    sessions = {headers["mcp-session-id"] for headers in calls.values()}
    status = zoe.ask("GET", f"/api/mcp/servers/{made[0][1]['id']}")[0]
    for who, row, _ in made:
        who.ask("DELETE", f"/api/mcp/servers/{row['id']}")
    if wrong or len(sessions) != 2 or status != 404:
        raise Failed(f"{calls}, {status}")
    return "each call had its tenant's header in its tenant's session; the other's server is 404"


def own_sessions(bugs):
    kin, root, ann = bugs.kin, bugs.service, person(bugs)
    row = kin.register("session404")
    for_all(bugs, [row])
    query = f"?prefix=off&sources={row['slug']}"
    get(f"{kin.url}/__reset")
    clients = [client(who, who.session(None), query=query) for who in (root, ann)]
    for one, who in zip(clients, ("root", "ann")):
        found = one.call("echo", {"q": who}).message()
        if "result" not in found or found["result"].get("isError"):
            raise Failed(brief(found))
    calls = {entry["params"]["arguments"]["q"]: entry["h"]["mcp-session-id"] for entry in kin.sent("session404")}
    stolen = Raw(clients[0].url, "2025-11-25", root.headers())
    stolen.session = clients[1].session
    status = stolen.ask("tools/list").status
    if len(set(calls.values())) != 2 or status != 404:
        raise Failed(f"{calls}, {status}")
    return "two people, two upstream sessions; with the other's id 404"


def pending(service, session):
    return service.api("GET", f"/api/permission-requests?sessionId={session}&state=pending")["items"]


def asked(bugs):
    kin, service = bugs.kin, bugs.service
    row = kin.register("gen")
    name = kin.tools(row)["notes"]["agentName"]
    for version in VERSIONS:
        for decision, sent in (("allow_once", 1), ("deny", 0)):
            get(f"{kin.url}/__reset")
            session = service.session([row["id"]], "ask_for_dangerous")
            one, ended = client(service, session, version), []
            calling = threading.Thread(target=lambda: ended.append(one.call(name, {"q": version}).message()["result"]))
            calling.start()
            question = wait("the question", lambda: pending(service, session) or None)[0]
            if kin.sent("gen"):
                raise Failed(f"{version}: sent before the decision")
            service.api("POST", f"/api/permission-requests/{question['id']}/decision", {"decision": decision})
            calling.join(30)
            if len(kin.sent("gen")) != sent or bool(ended[0].get("isError")) != (sent == 0):
                raise Failed(f"{version}, {decision}: sent {len(kin.sent('gen'))} times, {brief(ended)}")
    return "8 of 8: nothing sent before the decision, once after a yes, never after a no; the tool calls itself read-only"


def no_way_round(bugs):
    kin, service = bugs.kin, bugs.service
    row = kin.register("gen")
    name = kin.tools(row)["notes"]["agentName"]
    get(f"{kin.url}/__reset")
    session = service.session([row["id"]], "ask_for_dangerous")
    one = client(service, session, "2025-03-26")
    batch = [one.envelope("tools/call", {"name": name, "arguments": {"q": str(n)}})[0] for n in range(3)]
    headers = {"mcp-protocol-version": "2025-03-26", "mcp-session-id": one.session}
    threading.Thread(target=lambda: one.send("POST", json.dumps(batch).encode(), headers), daemon=True).start()
    found = wait("three questions", lambda: len(pending(service, session)) == 3 and pending(service, session))
    through = client(service, session, query=f"?prefix=off&sources={row['slug']}")
    threading.Thread(target=lambda: through.call("notes", {"q": "through"}), daemon=True).start()
    found = wait("a fourth", lambda: len(pending(service, session)) == 4 and pending(service, session))
    agent = Service.__new__(Service)
    agent.url, agent.admin = service.url, service.agent
    statuses = {
        "inspect": agent.ask("POST", f"/api/mcp/servers/{row['id']}/inspect", {"sessionId": session, "toolName": "notes", "input": {}})[0],
        "decide": agent.ask("POST", f"/api/permission-requests/{found[0]['id']}/decision", {"decision": "allow_once"})[0],
        "mode": agent.ask("PATCH", f"/api/sessions/{session}", {"approvalMode": "always_allow"})[0],
        "policy": agent.ask("PUT", f"/api/mcp/servers/{row['id']}/tools/notes", {"policy": "allow"})[0],
    }
    sent = len(kin.sent("gen"))
    for question in found:
        service.ask("POST", f"/api/permission-requests/{question['id']}/decision", {"decision": "deny"})
    wait("rows that are final", lambda: all(r["status"] == "failed" for r in service.rows(session)) or None)
    if sent or len(kin.sent("gen")) or set(statuses.values()) != {403}:
        raise Failed(f"sent {sent}, {statuses}")
    return "four calls, four questions, nothing sent; with an agent's token inspect, decide, mode and policy are 403"


def health(kin):
    row = kin.register("plain")
    client_, name = kin.client(row), kin.tools(row)["echo"]["agentName"]
    found = {}
    # The same server, behind what answers instead of it for a while.
    for status in ("401", "403", "429", "503", "html", "cut"):
        get(f"{kin.url}/__set?gate={status}")
        kin.service.ask("POST", f"/api/mcp/servers/{row['id']}/tools/refresh")
        kin.service.ask("POST", f"/api/mcp/servers/{row['id']}/test")
        get(f"{kin.url}/__set?gate=")
        now = kin.service.api("GET", f"/api/mcp/servers/{row['id']}")
        found[status] = now.get("statusError") or now["status"]
        pins = {tool["pin"] for tool in kin.tools(row).values()}
        result = result_of(client_.call(name, {"q": "x"}))
        if now["toolCount"] != 1 or pins != {"approved"} or result.get("isError"):
            raise Failed(f"{status}: {now['toolCount']} tools, {pins}, {brief(result)}")
    kin.service.api("POST", f"/api/mcp/servers/{row['id']}/tools/refresh")
    if kin.service.api("GET", f"/api/mcp/servers/{row['id']}")["status"] != "ready":
        raise Failed("not ready after the fault")
    return f"status {found}; the tool stays listed, approved and callable; ready again at the next look"


def noise(bugs):
    service, counts = bugs.service, {}
    for server in bugs.programs:
        row = service.register(server.slug, **server.form(), ready=False)
        bugs.kin.rows.append(row["id"])
        if row["status"] != "ready" or row["toolCount"] != 9:
            raise Failed(f"{server.slug} is {row['status']}, {row['toolCount']} tools: {row.get('statusError')}")
        one = client(service, service.session([row["id"]]))
        for _ in range(6):
            result = result_of(one.call(f"mcp__{server.slug}__read_graph", {}))
            if result.get("isError"):
                raise Failed(f"{server.slug}: {brief(result)}")
            time.sleep(.2 if server.slug == "noiselater" else 0)
        counts[server.slug] = row["toolCount"]
    return f"{len(counts)} of {len(counts)} programs list their 9 tools and answer each of 6 calls"


def children(house, mark):
    """Processes below the service whose command line holds the mark."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if mark in words and "server-memory" in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def orphans(bugs):
    house, service = bugs.house, bugs.service
    server = bugs.programs[0]
    mark = str(house.rig_home)
    before = set(children(house, mark))
    row = service.register(server.slug, **server.form(), ready=False)
    bugs.kin.rows.append(row["id"])
    one = client(service, service.session([row["id"]]))
    result_of(one.call(f"mcp__{server.slug}__read_graph", {}))
    running = set(children(house, mark)) - before
    if not running:
        raise Failed("no program is running")
    house.stop("bailiwick", signal.SIGKILL)
    wait("no program left", lambda: not (running & set(children(house, mark))) or None, 10)
    service.start()
    one.connection.close()
    if result_of(one.call(f"mcp__{server.slug}__read_graph", {})).get("isError"):
        raise Failed("after the restart")
    return f"{len(running)} processes ran, none is left within 10 s; the same session calls it again after the start"
