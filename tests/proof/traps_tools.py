"""Bug reports about schemas, lists, results and errors."""

import clients
from bugs import KIN, codes, result_of, same
from house import Failed, get, refusal
from odd import offered
from peers import brief
from raw import VERSIONS, Raw

STRICT = ["python mcp 1.30", "TypeScript SDK 1.32", "TypeScript SDK 2.0", "python mcp 2.3", "fastmcp 4.2"]


def entries(bugs):
    kin = bugs.kin
    yield "D13", "schemas", "/schemas, unchanged in the list; calls that fit and that do not; the journal", lambda: schemas(kin)
    yield "D20", "results", "/structonly /structerr", lambda: same(kin, ["structonly", "structerr"])
    yield "D20", "results", KIN + "`_meta` on errors, no content, null and list as structured content, unknown types, an empty result", \
        lambda: same(kin, ["rmeta", "rnocontent", "rnull", "rarray", "rtypes", "rempty"])
    yield "D20", "results", KIN + "structured content against the output schema", lambda: same(kin, ["rmismatch"])
    yield "E20", "errors in results", "/err200; " + KIN + "a result that speaks of 401", lambda: same(kin, ["err200", "rlie"])
    yield "E20", "errors in results", KIN + "a JSON-RPC error that speaks of tokens, with 200 and with 400", \
        lambda: codes(kin, {"crpc": "TOOL_ERROR", "crpc400": "TOOL_ERROR"})
    yield "E20", "statuses", "/stream401; " + KIN + "401 bare, as HTML, as JSON-RPC; 403, 403 with a scope, 407, 408, 413, 418", \
        lambda: codes(kin, {"stream401": "UNAUTHORIZED", "c401bare": "UNAUTHORIZED", "c401html": "UNAUTHORIZED", "c401rpc": "UNAUTHORIZED",
                            "c403": "UNAUTHORIZED", "c403scope": "INSUFFICIENT_SCOPE", "c407": "UPSTREAM_FORMAT", "c408": "UPSTREAM_FORMAT",
                            "c413": "UPSTREAM_FORMAT", "c418": "UPSTREAM_FORMAT"})
    yield "E20", "statuses", KIN + "429 with seconds, a past date, no date; 500 as HTML and JSON-RPC, 503", \
        lambda: codes(kin, {"c429": "RATE_LIMITED", "c429date": "RATE_LIMITED", "c429odd": "RATE_LIMITED",
                            "c500": "UPSTREAM_UNAVAILABLE", "c500rpc": "UPSTREAM_UNAVAILABLE", "c503": "UPSTREAM_UNAVAILABLE"})
    yield "E20", "answers", KIN + "202, 204, empty, HTML, cut JSON, null, a list, NaN, bad UTF-8, another id, no result, a stream without "\
        "an answer, garbage, a header of 200 kB, a short body, false gzip, brotli", \
        lambda: codes(kin, {path: "UPSTREAM_FORMAT" for path in (
            "c202", "c204", "cempty", "chtml", "ctrunc", "cnull", "clist", "cnan", "cbadutf8", "cotherid", "cnoresult",
            "cssegarbage", "cgarbagegzip", "cbr")}
            | {"cssenothing": "UPSTREAM_UNAVAILABLE", "cshort": "UPSTREAM_UNAVAILABLE", "cbigheader": "UPSTREAM_FORMAT"})
    yield "E20", "answers", KIN + "`error: null` beside a result, no `jsonrpc`", lambda: lenient(kin)
    yield "E33", "lists", "/badone", lambda: badone(kin, bugs.house)
    yield "E33", "lists", KIN + "66 odd definitions, most of them bad, between two good ones, read by real clients", lambda: badlist(kin, bugs.house)
    yield "E34", "names", "/longnames", lambda: names(kin, "longnames", 6)
    yield "E34", "names", KIN + "36 and 37 characters, our own forms, reserved words, case, scripts, 300 characters", lambda: names(kin, "names", None)
    yield "E34", "names", KIN + "one name twice, one that looks like another", lambda: twins(kin)
    yield "E35", "rug pull", "/changing", lambda: changing(kin)
    yield "E35", "rug pull", KIN + "a full stop, a hint, a word in the schema, title, output schema, `_meta`, an invisible character; gone and back", \
        lambda: generations(kin)
    yield "E35", "rug pull", KIN + "readOnlyHint is no permission", lambda: read_only(kin)
    yield "E35", "lists", "/huge", lambda: huge(kin)


def schemas(kin):
    get(f"{kin.url}/__reset")
    row = kin.register("schemas")
    client = kin.client(row)
    raw = Raw(f"{kin.url}/schemas", "2025-06-18")
    raw.begin()
    direct = {tool["name"]: tool for tool in result_of(raw.ask("tools/list"))["tools"]}
    listed = {tool["name"]: tool for tool in offered(client)}
    names = {name: tool["agentName"] for name, tool in kin.tools(row).items()}
    for name, tool in direct.items():
        if name != "extref" and listed[names[name]] != {**tool, "name": names[name]}:
            raise Failed(f"{name}: {brief(listed[names[name]])}")
    good = {"defs": {"query_model": {"limit": 5}}, "recursive": {"n": {"kids": [{"kids": []}]}}, "rootallof": {"mode": "a"},
            "emptyschema": {"any": [1]}, "nullable": {"x": None}, "dollar": {"$filter": "a", "a.b": 1.5}, "bigenum": {"e": "v1999"}}
    for tool, arguments in good.items():
        kin.equal("schemas", tool, arguments, row)
    for tool, arguments in {"defs": {}, "recursive": {"n": {"kids": [7]}}, "bigenum": {"e": "v2000"}, "dollar": {"a.b": "x"}}.items():
        code = refusal(kin.call(row, tool, arguments or {"z": 1})).get("code")
        if code != "INVALID_INPUT":
            raise Failed(f"{tool} {arguments}: {code}")
    fetched = [entry["p"] for entry in kin.log() if entry["p"].startswith("/f/")]
    if fetched:
        raise Failed(f"fetched {fetched}")
    return f"9 of 10 listed unchanged but for the name; `extref`: {kin.tools(row)['extref'].get('problem')}; no GET /f/meta"


def lenient(kin):
    found = {}
    for path in ("cboth", "cnoversion"):
        code, sent, result = kin.refusal(path)
        found[path] = code or "taken"
        if sent != 1:
            raise Failed(f"{path}: sent {sent} times")
    return f"{found}"


def badone(kin, house):
    row = kin.register("badone")
    kin.equal("badone", "good1", row=row)
    kin.equal("badone", "good2", row=row)
    return read(kin, house, row, 3)


def read(kin, house, row, least):
    """Real clients take the whole list, and call its first and last tool."""
    listed = offered(kin.client(row))
    names = kin.tools(row)
    if len(listed) < least:
        raise Failed(f"{len(listed)} tools are listed")
    service, counts = kin.service, {}
    for client in STRICT:
        plan = {"url": service.gateway(service.session([row["id"]])), "headers": service.headers(), "list": True,
                "calls": [{"tool": names[tool]["agentName"], "arguments": {"q": "x"}} for tool in ("good1", "good2")]}
        ran = clients.run(house, client, plan)
        counts[client] = len(ran["tools"]) - 1
        if counts[client] != len(listed) or any("result" not in one or one["result"].get("isError") for one in ran["ended"]):
            raise Failed(f"{client}: {counts[client]} of {len(listed)} tools, {brief(ran['ended'])}")
    return f"{len(listed)} tools are listed; {len(STRICT)} of {len(STRICT)} clients read all and call the good ones"


def badlist(kin, house):
    row = kin.register("badlist")
    tools = kin.tools(row)
    kin.equal("plain", "good1", row=row)
    kin.equal("plain", "good2", row=row)
    said = read(kin, house, row, 20)
    client = kin.client(row)
    for tool in offered(client):
        if tool["inputSchema"].get("type") != "object" or tool.get("outputSchema", {"type": "object"}).get("type") != "object":
            raise Failed(brief(tool))
    bad = sum(tool["pin"] == "invalid" for tool in tools.values())
    return f"{said}; {bad} are invalid, each with its problem; {row.get('statusError')}"


def names(kin, path, count):
    row = kin.register(path)
    tools = kin.tools(row)
    usable = [tool for tool in tools.values() if tool["pin"] == "approved"]
    agent = [tool["agentName"] for tool in usable]
    if any(len(name) > 64 or not name.isascii() for name in agent) or len(set(agent)) != len(agent):
        raise Failed(f"{agent}")
    if count and len(usable) != count:
        raise Failed(f"{len(usable)} of {count}")
    for tool in usable:
        kin.equal(path, tool["name"], row=row)
        if kin.sent(path)[-1]["params"]["name"] != tool["name"]:
            raise Failed(f"{tool['name']} arrives as {kin.sent(path)[-1]['params']['name']}")
    again = kin.register(path)
    if sorted(tool["id"] for tool in kin.tools(again).values()) != sorted(tool["id"] for tool in tools.values()):
        raise Failed("the aliases are not stable")
    hidden = {name: tool.get("problem") for name, tool in tools.items() if tool["pin"] != "approved"}
    return f"{len(usable)} mapped to at most 64 characters and back" + (f"; hidden: {hidden}" if hidden else "")


def twins(kin):
    row = kin.register("twins")
    tools = kin.service.all(f"/api/mcp/servers/{row['id']}/tools")
    pins = {tool["name"]: (tool["pin"], tool.get("problem")) for tool in tools}
    listed = {tool["name"].rpartition("__")[2] for tool in offered(kin.client(row))}
    if not {"good1", "good2"} <= listed or "twin" in listed or len(listed & {"lookalike"}) + sum("look" in n for n in listed) > 2:
        raise Failed(f"{listed} {pins}")
    kin.equal("twins", "good1", row=row)
    return f"{pins}"


def changing(kin):
    row = kin.register("changing")
    client, name = kin.client(row), kin.tools(row)["notes"]["agentName"]
    if result_of(client.call(name, {})).get("isError"):
        raise Failed("as approved, it cannot be called")
    kin.service.api("POST", f"/api/mcp/servers/{row['id']}/tools/refresh")
    sent = len(kin.sent("changing"))
    code = refusal(result_of(client.call(name, {}))).get("code")
    if code != "TOOL_CHANGED" or offered(client) or len(kin.sent("changing")) != sent:
        raise Failed(f"{code}, {offered(client)}")
    tool = kin.tools(row)["notes"]
    waits = tool["diff"]["pending"]["definitionHash"]
    kin.service.api("POST", f"/api/mcp/servers/{row['id']}/tools/{tool['id']}/approve", {"definitionHash": waits})
    if result_of(client.call(name, {})).get("isError"):
        raise Failed("released, it cannot be called")
    return "quarantined with a diff, `TOOL_CHANGED`, not listed, nothing sent; callable after its release"


def generations(kin):
    row = kin.register("gen")
    client, name = kin.client(row), kin.tools(row)["notes"]["agentName"]
    found = {}
    expected = {1: "quarantined", 2: "quarantined", 3: "quarantined", 4: "quarantined", 5: "quarantined", 6: "quarantined",
                7: "approved", 8: "gone", 0: "approved", 10: "quarantined", 9: "approved"}
    try:
        for number, wanted in expected.items():
            get(f"{kin.url}/__set?gen={number}")
            kin.service.api("POST", f"/api/mcp/servers/{row['id']}/tools/refresh")
            tools = kin.tools(row)
            found[number] = tools["notes"]["pin"] if "notes" in tools else "gone"
            code = refusal(client.call(name, {}).message().get("result")).get("code")
            called = {"quarantined": "TOOL_CHANGED", "approved": None}.get(found[number], "no such tool")
            if found[number] != wanted or called != "no such tool" and code != called:
                raise Failed(f"generation {number}: {found[number]}, call {code}")
            if number == 9 and tools["fresh"]["pin"] != "quarantined":
                raise Failed(f"a new tool is {tools['fresh']['pin']}")
    finally:
        get(f"{kin.url}/__set?gen=0")
    return "each change is quarantined; members in another order are no change; what is as approved again can be called; a new tool waits"


def read_only(kin):
    row = kin.register("gen")
    session = kin.service.session([row["id"]], "ask_for_dangerous")
    client = Raw(kin.service.gateway(session), VERSIONS[-1], kin.service.headers())
    client.begin()
    tool = kin.tools(row)["notes"]
    before = len(kin.sent("gen"))
    kin.service.api("PUT", f"/api/mcp/servers/{row['id']}/tools/{tool['id']}", {"policy": "deny"})
    code = refusal(result_of(client.call(tool["agentName"], {}))).get("code")
    if code != "PERMISSION_DENIED" or len(kin.sent("gen")) != before:
        raise Failed(f"{code}")
    return "policy deny holds; what ask does to it is D15"


def huge(kin):
    row = kin.register("huge")
    listed = offered(kin.client(row))
    if len(listed) != row["toolCount"] or row["toolCount"] > 1000:
        raise Failed(f"{len(listed)} of {row['toolCount']}")
    return f"the first {len(listed)} are listed; {row['statusError']}"
