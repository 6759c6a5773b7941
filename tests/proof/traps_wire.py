"""Bug reports about transports and sessions."""

import http.client
import json
import threading
import time

from bugs import KIN, codes, result_of, same
from house import Failed, free_port, get, refusal, wait
from peers import brief
from raw import VERSIONS, Raw



def entries(bugs):
    kin = bugs.kin
    yield "D10", "degraded upstream", "one server of three refuses TCP, is silent (chaosproxy stall), resets", lambda: degraded(bugs)
    yield "D11", "session", "/session404: forgotten between calls; also E32", lambda: lost(kin, "session404")
    yield "D11", "session", KIN + "404 empty, as HTML, as text, as JSON-RPC; eight calls at once", lambda: lost_kin(kin)
    yield "D11", "session", KIN + "400, 410, 422, 500, and 200 with an error, for an unknown session", lambda: not_for_ever(kin)
    yield "D11", "session", KIN + "404 for every session: no loop", lambda: lost_always(kin)
    yield "D12", "SSE framing", "/plain /crlf /multidata", lambda: same(kin, ["plain", "crlf", "multidata"])
    yield "D12", "SSE framing", KIN + "CR alone, byte by byte, BOM, odd fields, other events, a split CRLF, an event that the end cuts, "\
        "empty data, charset, notifications before the answer, gzip, no content type, a batch, 201, HTTP/1.0, 103 and 102 before it, a connection that closes", \
        lambda: same(kin, ["cr", "bytewise", "bom", "oddfields", "otherevents", "splitcrlf", "unended", "unendedline", "emptydata",
                           "charset", "notesfirst", "jsoncharset", "jsonspaces", "gzipped", "gzippedsse", "notype", "batched",
                           "created", "http10", "hints", "closes"], as_plain=True)
    yield "D12", "SSE framing", KIN + "a BOM before JSON, `application/vnd.mcp+json`", lambda: clear(kin, ["jsonbom", "suffix"])
    yield "D12", "SSE framing", KIN + "an id given back as text", lambda: text_id(kin)
    yield "D12", "SSE framing", KIN + "an event stream called JSON, JSON called an event stream", lambda: lying(kin)
    yield "D12", "legacy SSE", "/sse /sse-crlf", lambda: legacy(kin, ["sse", "sse-crlf"])
    yield "D12", "legacy SSE", KIN + "CR, absolute and relative endpoint, after comments and other events, data over several lines", \
        lambda: legacy(kin, ["sse-cr", "sse-abs", "sse-rel", "sse-late", "sse-multi"])
    yield "E31", "legacy SSE", "/sse-xorigin and kin: user-info, `//host`, https, metadata, none, empty", lambda: elsewhere(kin)
    yield "E31", "legacy SSE", KIN + "a second endpoint event names another origin", lambda: legacy(kin, ["sse-twice"])
    yield "D14", "pagination", "/pages; " + KIN + "empty pages, an empty cursor, an odd one, a tool on two pages", lambda: pages(kin)
    yield "D14", "pagination", KIN + "a cursor that comes back, a number, page 2 fails or is null", lambda: bad_pages(kin)
    yield "D14", "pagination", KIN + "pages without end", lambda: endless(kin)
    yield "E22", "negative cache", "server stopped, called, started, called at once; discovery failed before it was up", lambda: recovers(bugs)
    yield "E24", "version", "/v0618 /initstrict; the header on every later request", lambda: versions(kin)
    yield "E24", "version", KIN + "2024-11-05, 2025-03-26, a future version, none", lambda: odd_versions(kin)
    yield "E25", "our server", "initialize with and without every kind of MCP-Protocol-Version", lambda: initialize(bugs)
    yield "E26", "long streams", "/slow: 30 s of comments; " + KIN + "40 s of silence, a body in drops; our own comments", lambda: long_streams(kin)
    yield "E26", "long streams", "chaosproxy: cut after 300 bytes with a reset, 200 ms latency, 2 kB/s", lambda: chaos(bugs)
    yield "E29", "cancellation", "/slow, cancelled in each era: at the server its own id; siblings with the same client id live on", lambda: cancelled(kin)
    yield "E30", "redirects", "/redir307", lambda: redirected(kin, ["redir307"])
    yield "E30", "redirects", KIN + "absolute, relative, a slash, a query, two hops", \
        lambda: redirected(kin, ["m307abs", "m308rel", "m307slash", "m308query", "m307twice"])
    yield "E30", "redirects", KIN + "301, 302, 303, 300, 304, a circle, no Location", \
        lambda: stays(kin, ["m301", "m302", "m303", "m300", "m304", "m307loop", "m307none"])
    yield "E31", "redirects", "/redir308x, with X-Api-Key; " + KIN + "301, 302, 307 elsewhere, another port, another name, "\
        "user-info, `//host`, a backslash, https, metadata, a file", \
        lambda: stays(kin, ["redir308x", "m301x", "m302x", "m307x", "m307port", "m307name", "m307user", "m307proto", "m307back",
                            "m307https", "m307meta", "m307file"])
    yield "E32", "session", "DELETE by somebody else between calls (/session404)", lambda: deleted(kin)
    yield "D12", "broken streams", "/drop; " + KIN + "cut in a body, cut in a stream, a stream that resumes, one that does not", lambda: broken(kin)


def text_of(result):
    return (result.get("content") or [{}])[0].get("text", "")


def fine(result, where):
    if result.get("isError") or '"x"' not in text_of(result):
        raise Failed(f"{where}: {brief(result)}")


def call(kin, client, row, tool="echo"):
    names = kin.tools(row)
    return result_of(client.call(names[tool]["agentName"], {"q": "x"}))


def lost(kin, path):
    row = kin.register(path)
    client = kin.client(row)
    fine(call(kin, client, row), "before")
    get(f"{kin.url}/__reset")
    fine(call(kin, client, row), "after the loss")
    log = kin.log()
    begun = [entry for entry in log if entry["rpc"] == "initialize"]
    if len(begun) != 1 or "mcp-session-id" in begun[0]["h"]:
        raise Failed(f"initialize: {begun}")
    if len(kin.sent(path)) != 2:
        raise Failed(f"sent {len(kin.sent(path))} times")
    return "begun anew once, without an id; the call sent again once"


def lost_kin(kin):
    for path in ("l404empty", "l404html", "l404text", "l404rpc"):
        lost(kin, path)
    row = kin.register("l404text", governance={"maxConcurrent": 8})
    clients = [kin.client(row) for _ in range(8)]
    ended = []
    calls = [threading.Thread(target=lambda c=c: ended.append(call(kin, c, row))) for c in clients]
    fine(call(kin, clients[0], row), "before")
    get(f"{kin.url}/__reset")
    for one in calls:
        one.start()
    for one in calls:
        one.join()
    for result in ended:
        fine(result, "one of eight")
    begun = [entry for entry in kin.log() if entry["rpc"] == "initialize"]
    if len(ended) != 8 or len(begun) != 1:
        raise Failed(f"{len(ended)} answers, begun {len(begun)} times")
    return "4 of 4 as above; eight calls begin it anew once, and all succeed"


def not_for_ever(kin):
    wrong, first = [], {}
    for path in ("l400rpc", "l400text", "l410", "l422", "l500", "l200rpc"):
        row = kin.register(path)
        client = kin.client(row)
        fine(call(kin, client, row), "before")
        get(f"{kin.url}/__reset")
        results = [call(kin, client, row) for _ in range(2)]
        first[path] = refusal(results[0]).get("code") or "succeeded"
        if results[1].get("isError"):
            wrong.append(f"{path}: for ever {refusal(results[1])}")
        if len(kin.sent(path)) > 3:
            wrong.append(f"{path}: sent {len(kin.sent(path))} times")
    if wrong:
        raise Failed("; ".join(wrong))
    return f"these prove nothing, so that call fails ({first}) and is not repeated; the next one succeeds in a new session"


def lost_always(kin):
    row = kin.add("lalways")
    if row["status"] == "ready":
        raise Failed("discovery succeeded")
    begun = [entry for entry in kin.log() if entry["rpc"] == "initialize" and entry["p"] == "/lalways"]
    if len(begun) > 4:
        raise Failed(f"begun {len(begun)} times")
    return f"{row['statusError']}; begun {len(begun)} times in all"


def text_id(kin):
    row = kin.register("textid")
    fine(call(kin, kin.client(row), row), "textid")
    return "taken"


def lying(kin):
    return clear(kin, ["sseasjson", "jsonassse"])


def clear(kin, paths):
    """Taken, or refused with words."""
    found = {}
    for path in paths:
        row = kin.add(path)
        found[path] = row["status"]
        if row["status"] == "ready":
            fine(call(kin, kin.client(row), row), path)
        elif not row.get("statusError"):
            raise Failed(f"{path}: {row['status']} without a word")
        else:
            found[path] += f" ({row['statusError']})"
    return f"{found}"


def legacy(kin, paths):
    for path in paths:
        row = kin.register(path, transport="sse")
        fine(call(kin, kin.client(row), row), path)
    return f"{len(paths)} of {len(paths)}: registered, listed, called"


def elsewhere(kin):
    get(f"{kin.url}/__reset")
    words = set()
    for path in ("sse-xorigin", "sse-user", "sse-proto", "sse-https", "sse-meta", "sse-empty", "sse-never"):
        row = kin.add(path, transport="sse", headers={"X-Api-Key": "k-secret"})
        if row["status"] != "error" or not row.get("statusError"):
            raise Failed(f"{path} is {row['status']}: {row.get('statusError')}")
        words.add(row["statusError"])
    posted = [entry["p"] for entry in kin.log() if entry["m"] == "POST"]
    if posted:
        raise Failed(f"posted to {posted}")
    return f"refused ({'; '.join(sorted(words))}); nothing was posted anywhere"


def pages(kin):
    counts = {path: kin.register(path)["toolCount"] for path in ("pages", "cursorempty", "cursorlong")}
    if counts != {"pages": 120, "cursorempty": 2, "cursorlong": 3}:
        raise Failed(f"{counts}")
    row = kin.register("pagedup")
    tools = kin.tools(row)
    if tools["good1"]["pin"] != "approved" or tools["good3"]["pin"] != "approved":
        raise Failed(f"{tools}")
    return f"tools {counts}; a name on two pages is {tools['good2']['pin']} ({tools['good2'].get('problem')}), its siblings approved"


def bad_pages(kin):
    words = {}
    for path in ("cursorloop", "cursornum", "page2fails", "pagenull"):
        row = kin.add(path)
        if row["status"] == "error" and row.get("statusError"):
            words[path] = row["statusError"]
        else:
            raise Failed(f"{path} is {row['status']}, {row['toolCount']} tools")
    return f"a clear error each: {words}"


def endless(kin):
    row = kin.register("endless")
    return f"{row['toolCount']} tools after as many pages; {row.get('statusError')}"


def degraded(bugs):
    kin, house, service = bugs.kin, bugs.house, bugs.service
    healthy = kin.register("plain")
    # Three that die after they were discovered: through a proxy that can be told.
    port = free_port()
    house.peer("chaos", [house.python("mcp1"), house.rig / "chaosproxy.py", port, f"127.0.0.1:{kin.port}", port + 1], port)
    told = lambda **knobs: get(f"http://127.0.0.1:{port + 1}/set?" + "&".join(f"{k}={v}" for k, v in knobs.items()))
    row = service.register("behind", f"http://127.0.0.1:{port}/plain", timeoutSeconds=5)
    kin.rows.append(row["id"])
    session = service.session([healthy["id"], row["id"]])
    client = Raw(service.gateway(session), "2025-11-25", service.headers())
    client.begin()
    good, bad = kin.tools(healthy)["echo"]["agentName"], kin.tools(row)["echo"]["agentName"]
    found = {}
    for fault in ("stall", "refuse", "down"):
        if fault == "down":
            house.stop("chaos")
        else:
            # What is open must not help.
            told(**{fault: 1}, kill=1)
        others = Raw(service.gateway(session), "2025-11-25", service.headers())
        others.begin()
        ended = []
        dead = threading.Thread(target=lambda: ended.append(result_of(others.call(bad, {"q": "x"}))))
        began = time.monotonic()
        dead.start()
        listed = result_of(client.ask("tools/list"))["tools"]
        fine(result_of(client.call(good, {"q": "x"})), f"the healthy one beside {fault}")
        quick = time.monotonic() - began
        dead.join(30)
        if quick > 3 or len(listed) != 3 or not ended or time.monotonic() - began > 20:
            raise Failed(f"{fault}: healthy after {quick:.1f} s, {len(listed)} listed, dead one {ended}")
        found[fault] = refusal(ended[0]).get("code") or "succeeded"
        if fault != "down":
            told(**{fault: 0})
            began = time.monotonic()
            fine(result_of(client.call(bad, {"q": "x"})), f"after {fault}")
            if time.monotonic() - began > 10:
                raise Failed(f"{fault}: it took {time.monotonic() - began:.1f} s to recover")
    return f"the healthy one lists and answers at once; the other {found}; it works again as soon as the fault is over"


def recovers(bugs):
    kin, house, service = bugs.kin, bugs.house, bugs.service
    row = kin.register("plain")
    client = kin.client(row)
    name = kin.tools(row)["echo"]["agentName"]
    house.stop("kin")
    down = refusal(result_of(client.call(name, {"q": "x"}))).get("code")
    early = kin.add("plain")
    house.peer("kin", kin.command, kin.port)
    fine(result_of(client.call(name, {"q": "x"})), "at once after the start")
    status, _ = service.ask("POST", f"/api/mcp/servers/{early['id']}/tools/refresh")
    now = service.api("GET", f"/api/mcp/servers/{early['id']}")
    if down != "UPSTREAM_UNAVAILABLE" or early["status"] != "error" or now["status"] != "ready":
        raise Failed(f"down: {down}; before: {early['status']}; refreshed: {status}, {now['status']}")
    return f"down: `{down}`; the first call after the start succeeds; one that was never reached is ready after a refresh"


def versions(kin):
    for path in ("v0618", "initstrict"):
        kin.equal(path, row=kin.register(path))
    asked = [entry for entry in kin.log() if entry["p"] == "/v0618" and entry["rpc"] not in ("initialize", "server/discover", None)]
    wrong = [entry for entry in asked if entry["h"].get("mcp-protocol-version") != "2025-06-18"]
    if wrong or not asked:
        raise Failed(f"{wrong[:2]}")
    return f"{len(asked)} later requests, all with 2025-06-18"


def odd_versions(kin):
    found = {}
    for path in ("v2024", "v0326strict", "vfuture", "vnone"):
        row = kin.add(path)
        found[path] = row.get("statusError") or row["status"]
        if row["status"] == "ready":
            fine(call(kin, kin.client(row), row), path)
        later = {entry["h"].get("mcp-protocol-version") for entry in kin.log()
                 if entry["p"] == f"/{path}" and entry["rpc"] in ("tools/list", "tools/call")}
        found[path] += f" {sorted(map(str, later))}" if later else ""
    if not found["v0326strict"].startswith("ready") or found["vfuture"].startswith("ready") or found["vnone"].startswith("ready"):
        raise Failed(f"{found}")
    return f"{found}"


def initialize(bugs):
    service = bugs.service
    url = service.gateway(service.session([]))
    wrong = []
    for header in (None, "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "banana", "", "2026-07-28", "2099-01-01"):
        for version in (*VERSIONS[:3], "2024-11-05", "2099-01-01", "1"):
            one = Raw(url, version, service.headers())
            body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}}
            headers = {} if header is None else {"mcp-protocol-version": header}
            answer = one.send("POST", json.dumps(body).encode(), headers)
            try:
                given = answer.message()["result"]["protocolVersion"]
            except Exception:
                wrong.append(f"header {header!r}, version {version}: {answer.status} {answer.body[:120]!r}")
                continue
            expected = version if version in VERSIONS[:3] else VERSIONS[2]
            if given != expected:
                wrong.append(f"header {header!r}, version {version}: {given}")
    if wrong:
        raise Failed("; ".join(wrong[:6]) + f" ({len(wrong)})")
    return "54 of 54 initialized, in the version asked for or our newest with sessions"


def long_streams(kin):
    ended = {}

    def one(path):
        row = rows[path]
        client = kin.client(row)
        message, headers = client.envelope("tools/call", {"name": kin.tools(row)["echo"]["agentName"], "arguments": {"q": "x"}})
        answer = client.send("POST", json.dumps(message).encode(), headers)
        ended[path] = (result_of(answer), answer.body.count(b"\n:") + answer.body.startswith(b":"))

    rows = {path: kin.register(path) for path in ("slow", "quiet", "trickle")}
    threads = [threading.Thread(target=one, args=(path,)) for path in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    for path in rows:
        if path not in ended:
            raise Failed(f"{path}: no answer")
        fine(ended[path][0], path)
    comments = {path: count for path, (_, count) in ended.items()}
    if comments["slow"] < 1 or comments["quiet"] < 2:
        raise Failed(f"comments to the client: {comments}")
    return f"all three succeed; comments to the client meanwhile: {comments}"


def chaos(bugs):
    kin, house, service = bugs.kin, bugs.house, bugs.service
    port = free_port()
    house.peer("chaos", [house.python("mcp1"), house.rig / "chaosproxy.py", port, f"127.0.0.1:{kin.port}", port + 1], port)
    told = lambda **knobs: get(f"http://127.0.0.1:{port + 1}/set?" + "&".join(f"{k}={v}" for k, v in knobs.items()))
    row = service.register("chaos", f"http://127.0.0.1:{port}/crlf")
    kin.rows.append(row["id"])
    client, name = kin.client(row), kin.tools(row)["echo"]["agentName"]
    told(latency=200)
    fine(result_of(client.call(name, {"q": "x"})), "latency")
    told(latency=0, rate=2000)
    fine(result_of(client.call(name, {"q": "x"})), "slow line")
    told(rate=0, kill=1)
    told(cut_after=250, rst=1)
    get(f"{kin.url}/__reset")
    cut = refusal(result_of(client.call(name, {"q": "x"}))).get("code")
    sent = len(kin.sent("crlf"))
    told(cut_after=0, rst=0)
    fine(result_of(client.call(name, {"q": "x"})), "after the cut")
    house.stop("chaos")
    if cut != "UPSTREAM_UNAVAILABLE" or sent != 1:
        raise Failed(f"cut: {cut}, sent {sent} times")
    return "slow lines succeed; a reset in the answer is `UPSTREAM_UNAVAILABLE`, sent once; the next call succeeds"


def cancelled(kin):
    row = kin.register("slow", governance={"maxConcurrent": 4})
    name = kin.tools(row)["echo"]["agentName"]
    get(f"{kin.url}/__reset")
    for version in VERSIONS:
        pair = [kin.client(row) if version == "2025-11-25" else begun(kin, row, version) for _ in range(2)]
        sent = []
        for one in pair:
            message, headers = one.envelope("tools/call", {"name": name, "arguments": {"q": version}})
            # Both clients give the same id.
            message["id"] = 4711
            one.connection.request("POST", one.path, json.dumps(message), {
                "content-type": "application/json", "accept": "application/json, text/event-stream", **one.extra, **headers})
            sent.append(headers)
        mine = lambda rpc: [e for e in kin.log() if e["rpc"] == rpc]
        here = lambda: [e for e in mine("tools/call") if e["params"]["arguments"]["q"] == version]
        calls = wait("both calls at the server", lambda: here() if len(here()) == 2 else None)
        before = len(mine("notifications/cancelled"))
        if version == VERSIONS[-1]:
            pair[0].connection.close()
        else:
            other = Raw(pair[0].url, version, pair[0].extra)
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4711}}
            other.send("POST", json.dumps(note).encode(), sent[0])
        told = wait("the server is told", lambda: mine("notifications/cancelled")[before:] or None, 5)
        ids = {e["id"] for e in calls}
        if len(told) != 1 or told[0]["params"]["requestId"] not in ids or 4711 in ids:
            raise Failed(f"{version}: told {[t['params'] for t in told]}, calls {ids}")
        pair[1].connection.close()
        if version != VERSIONS[-1]:
            other = Raw(pair[1].url, version, pair[1].extra)
            if len(mine("notifications/cancelled")) != before + 1:
                raise Failed(f"{version}: the sibling was cancelled too")
            other.send("POST", json.dumps(note).encode(), sent[1])
        wait("the sibling is told as well", lambda: len(mine("notifications/cancelled")) == before + 2, 5)
    return "one `notifications/cancelled` with the id that we gave; the sibling, of the same client id, runs on until it is cancelled itself"


def begun(kin, row, version):
    client = Raw(kin.service.gateway(kin.service.session([row["id"]])), version, kin.service.headers())
    client.begin()
    return client


def redirected(kin, paths):
    for path in paths:
        row = kin.register(path)
        fine(call(kin, kin.client(row), row), path)
    return f"{len(paths)} of {len(paths)} followed: the caller sees the result alone"


def stays(kin, paths):
    get(f"{kin.url}/__reset")
    words = set()
    for path in paths:
        row = kin.add(path, headers={"X-Api-Key": "k-secret"})
        if row["status"] != "error" or not row.get("statusError"):
            raise Failed(f"{path} is {row['status']}: {row.get('statusError')}")
        words.add(row["statusError"])
    strayed = [entry for entry in kin.log() if entry["p"].split("?")[0].strip("/") not in [*paths, "__log", "__reset"]]
    if strayed:
        raise Failed(f"sent on: {strayed[:2]}")
    return f"{len(paths)} of {len(paths)} not followed ({'; '.join(sorted(words))}); nothing reached another address"


def deleted(kin):
    row = kin.register("session404")
    client = kin.client(row)
    fine(call(kin, client, row), "before")
    session = kin.sent("session404")[-1]["h"]["mcp-session-id"]
    connection = http.client.HTTPConnection("127.0.0.1", kin.port)
    connection.request("DELETE", "/session404", headers={"mcp-session-id": session})
    connection.getresponse().read()
    fine(call(kin, client, row), "after")
    return "begun anew, the call succeeds"


def broken(kin):
    found = codes(kin, {"drop": "UPSTREAM_UNAVAILABLE", "cutbody": "UPSTREAM_UNAVAILABLE",
                        "cutsse": "UPSTREAM_UNAVAILABLE", "resumesnot": "UPSTREAM_UNAVAILABLE"})
    row = kin.register("resumes")
    fine(call(kin, kin.client(row), row), "resumes")
    if len(kin.sent("resumes")) != 1:
        raise Failed("the call was sent twice")
    return f"{found}; one that resumes by Last-Event-ID gives its result"
