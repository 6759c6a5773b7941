"""Servers with the manners of public bug reports: one path of the rig's odd server for each."""

from house import Failed, free_port, get, refusal
from peers import INVOCATION, brief
from raw import Raw


class Odd:
    def __init__(self, house, service):
        self.service, self.port = service, free_port()
        house.peer("odd", [house.python("mcp1"), house.rig / "mocks" / "oddmcp.py", self.port], self.port)
        self.url = f"http://127.0.0.1:{self.port}"

    def register(self, path):
        row = self.service.register(f"odd-{path}", f"{self.url}/{path}", ready=False)
        if row["status"] != "ready":
            raise Failed(f"{path} is {row['status']}: {row.get('statusError')}")
        return row

    def tools(self, row):
        return {tool["name"]: tool for tool in self.service.all(f"/api/mcp/servers/{row['id']}/tools")}

    def client(self, row):
        client = Raw(self.service.gateway(self.service.session([row["id"]])), "2025-11-25",
                     self.service.headers())
        client.begin()
        return client

    def call(self, row, tool="echo", arguments=None):
        names = self.tools(row)
        answer = self.client(row).call(names[tool]["agentName"], arguments or {"q": "x"})
        return answer.message()["result"]

    def directly(self, path, tool="echo", arguments=None):
        client = Raw(f"{self.url}/{path}", "2025-06-18")
        client.begin()
        return client.call(tool, arguments or {"q": "x"}).message()["result"]

    def sent(self, path, method="tools/call"):
        return [entry for entry in get(f"{self.url}/__log")
                if entry["p"].strip("/") == path and entry["rpc"] == method]

    def equal(self, path, tool="echo", arguments=None, row=None):
        """The call through the gateway gives what the direct one gives."""
        passed = self.call(row or self.register(path), tool, arguments)
        passed["_meta"].pop(INVOCATION)
        if not passed["_meta"]:
            del passed["_meta"]
        direct = self.directly("plain" if path == "redir307" else path, tool, arguments)
        if passed != direct:
            raise Failed(f"directly {brief(direct)}, through the gateway {brief(passed)}")

    def refused(self, path, code):
        """The call fails with that code, and the server was asked once."""
        error = refusal(self.call(self.register(path)))
        if error.get("code") != code or len(self.sent(path)) != 1:
            raise Failed(f"{error}, sent {len(self.sent(path))} times")


def offered(client):
    """The tools of servers that a client is told of, in one page; ours is not one of them."""
    listed = client.ask("tools/list").message()["result"]
    if listed.get("nextCursor"):
        raise Failed("there is another page")
    return [tool for tool in listed["tools"] if tool["name"] != "result_read"]


def proofs(odd):
    """What is proven, and how; in this order."""
    for path, what in {
        "plain": "JSON answers", "crlf": "event streams with CRLF",
        "multidata": "events with comments, ids and several data lines",
        "redir307": "a redirect to the same host is followed",
        "v0618": "the negotiated version goes into the header",
        "initstrict": "a server that refuses our newest version is asked for one that it has",
        "structonly": "a result without content", "structerr": "an error without content",
        "err200": "an error that speaks of tokens",
    }.items():
        yield path, what, lambda path=path: odd.equal(path)
    for path, what, proof in (
        ("pages", "all pages of tools/list are read", pages),
        ("schemas", "schemas with $defs, recursion, conditions; no remote one is fetched", schemas),
        ("badone", "one bad definition costs its siblings nothing", badone),
        ("longnames", "long, dotted and spaced names are mapped, and mapped back", longnames),
        ("session404", "a lost session is begun anew, the call sent again", session404),
        ("redir308x", "a redirect to another host is not followed", redir308x),
        ("drop", "a connection that breaks after the request is not tried again", drop),
        ("stream401", "401 is UNAUTHORIZED", stream401),
        ("huge", "3,000 tools in one page of 6 MB", huge),
        ("changing", "a definition that changes is quarantined", changing),
        ("slow", "30 s of comments before the answer", slow),
    ):
        yield path, what, lambda proof=proof: proof(odd)


def drop(odd):
    odd.refused("drop", "UPSTREAM_UNAVAILABLE")


def stream401(odd):
    odd.refused("stream401", "UNAUTHORIZED")


def slow(odd):
    odd.equal("slow")


def pages(odd):
    row = odd.register("pages")
    if row["toolCount"] != 120:
        raise Failed(f"{row['toolCount']} of 120 tools")
    listed = offered(odd.client(row))
    if len(listed) != 120:
        raise Failed(f"{len(listed)} tools are listed to clients")
    odd.equal("pages", "t119", row=row)


def schemas(odd):
    row = odd.register("schemas")
    tools = odd.tools(row)
    usable = {name for name, tool in tools.items() if tool["pin"] == "approved"}
    if len(tools) != 10 or not usable >= set(tools) - {"extref"}:
        raise Failed(f"{[(name, tool['problem']) for name, tool in tools.items() if name not in usable]}")
    for tool, arguments in {
        "defs": {"query_model": {"limit": 5}}, "recursive": {"n": {"kids": [{"kids": []}]}},
        "rootallof": {"mode": "a"}, "emptyschema": {"any": [1]}, "nullable": {"x": None, "y": 3},
        "unicodé.ツール": {"q": "x"}, "dollar": {"$filter": "a", "a.b": 1.5}, "bigenum": {"e": "v1999"},
    }.items():
        odd.equal("schemas", tool, arguments, row)
    for tool, arguments in {"defs": {}, "recursive": {"n": {"kids": [7]}}, "bigenum": {"e": "v2000"}}.items():
        error = refusal(odd.call(row, tool, arguments or {"z": 1}))
        if error.get("code") != "INVALID_INPUT":
            raise Failed(f"{tool} {arguments}: {error}")
    fetched = [entry["p"] for entry in get(f"{odd.url}/__log") if entry["p"].startswith("/f/")]
    if fetched:
        raise Failed(f"fetched {fetched}")


def badone(odd):
    row = odd.register("badone")
    listed = offered(odd.client(row))
    odd.equal("badone", "good1", row=row)
    odd.equal("badone", "good2", row=row)
    if any("outputSchema" in tool for tool in listed):
        raise Failed(f"a bad outputSchema is listed: {brief(listed)}")
    return f"{len(listed)} of 3 tools are listed, without the bad schema"


def longnames(odd):
    row = odd.register("longnames")
    usable = [tool for tool in odd.tools(row).values() if tool["pin"] == "approved"]
    if any(len(tool["agentName"]) > 64 for tool in usable):
        raise Failed(f"{[tool['agentName'] for tool in usable]}")
    for tool in usable:
        odd.equal("longnames", tool["name"], row=row)
    return f"{len(usable)} of 6 tools"


def session404(odd):
    row = odd.register("session404")
    odd.equal("session404", row=row)
    get(f"{odd.url}/__reset")
    passed = odd.call(row)
    if passed.get("isError") or "x" not in passed["content"][0]["text"]:
        raise Failed(brief(passed))


def redir308x(odd):
    row = odd.service.register("odd-redir308x", f"{odd.url}/redir308x", ready=False)
    if row["status"] != "error":
        raise Failed(f"it is {row['status']}")


def huge(odd):
    row = odd.service.register("odd-huge", f"{odd.url}/huge", ready=False)
    if row["status"] != "ready":
        if not row.get("statusError"):
            raise Failed(f"{row['status']} without a word")
        return f"refused: {row['statusError']}"
    if row["toolCount"] > 1_000:
        raise Failed(f"{row['toolCount']} tools")
    listed = offered(odd.client(row))
    if len(listed) != row["toolCount"]:
        raise Failed(f"{len(listed)} of {row['toolCount']} are listed")
    return f"the first {len(listed):,} are listed"


def changing(odd):
    row = odd.register("changing")
    client = odd.client(row)
    name = odd.tools(row)["notes"]["agentName"]
    if client.call(name, {}).message()["result"].get("isError"):
        raise Failed("as approved, it cannot be called")
    odd.service.api("POST", f"/api/mcp/servers/{row['id']}/tools/refresh")
    tool = odd.tools(row)["notes"]
    error = refusal(client.call(name, {}).message()["result"])
    listed = offered(client)
    if tool["pin"] != "quarantined" or error.get("code") != "TOOL_CHANGED" or listed:
        raise Failed(f"pin {tool['pin']}, call {error}, listed {listed}")
