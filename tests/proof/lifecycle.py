"""Sessions, restarts, cancellation, pauses."""

import json
import time

import clients
from house import Failed, refusal, wait
from peers import brief
from raw import MODERN, VERSIONS, Raw

# Nagle's algorithm against a delayed acknowledgement costs 40 ms on Linux, at every exchange.
PAUSE_MS = 38


def client(service, server, version="2025-11-25", mode="always_allow"):
    one = Raw(service.gateway(service.session([server.id], mode)), version, service.headers())
    one.begin()
    return one


def answered(one, server, where):
    result = one.call(server.names["add"], {"a": 1, "b": 2}).message().get("result")
    if not result or result.get("isError") or "3" not in result["content"][0]["text"]:
        raise Failed(f"{where}: {brief(result)}")


def server_restart(house, service, server):
    """An upstream session is lost with its server; nobody notices but us."""
    one = client(service, server)
    answered(one, server, "before")
    command = house.running[server.slug].args
    port = int(server.url.rsplit(":", 1)[1].split("/")[0])
    for how in ("at once", "after a failure"):
        house.stop(server.slug)
        if how == "after a failure":
            result = one.call(server.names["add"], {"a": 1, "b": 2}).message()["result"]
            error = refusal(result)
            if error.get("code") != "UPSTREAM_UNAVAILABLE":
                raise Failed(f"while it is down: {brief(result)}")
        house.peer(server.slug, command, port)
        answered(one, server, f"after a restart, {how}")


def service_restart(house, service, server):
    """An Mcp-Session-Id of the older protocol outlives the process."""
    ones = [client(service, server, version) for version in VERSIONS]
    began = time.monotonic()
    status = house.stop("bailiwick")
    took = time.monotonic() - began
    if status != 0 or took > 10:
        raise Failed(f"SIGTERM: status {status} after {took:.1f} s")
    service.start()
    for one in ones:
        one.connection.close()
        answered(one, server, one.version)


def sessions(service, server):
    one = client(service, server)
    stream = one.send("GET", headers={"mcp-session-id": one.session, "accept": "text/event-stream"})
    if stream.status != 405:
        raise Failed(f"GET: {stream.status}")
    forged = one.session[:-6] + ("AAAAAA" if one.session[-6:] != "AAAAAA" else "BBBBBB")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    for session, expected in ((forged, 404), (None, 400)):
        headers = {"mcp-protocol-version": "2025-11-25"}
        if session:
            headers["mcp-session-id"] = session
        found = one.send("POST", body, headers).status
        if found != expected:
            raise Failed(f"session {'forged' if session else 'left out'}: {found}, not {expected}")
    ended = one.send("DELETE", headers={"mcp-session-id": one.session})
    if ended.status not in (200, 204):
        raise Failed(f"DELETE: {ended.status}")
    anonymous = Raw(one.url, "2025-11-25")
    refused = anonymous.send("POST", body)
    if refused.status != 401 or "resource_metadata" not in refused.headers.get("www-authenticate", ""):
        raise Failed(f"without a token: {refused.status} {refused.headers.get('www-authenticate')}")


def batch(service, server):
    """2025-03-26 has batches, later versions refuse them."""
    name = server.names["add"]
    for version in VERSIONS:
        one = client(service, server, version)
        messages = [one.envelope("tools/call", {"name": name, "arguments": {"a": n, "b": 1}})[0]
                    for n in range(3)]
        headers = {"mcp-protocol-version": version}
        if one.session:
            headers["mcp-session-id"] = one.session
        answer = one.send("POST", json.dumps(messages).encode(), headers)
        if version != "2025-03-26":
            if answer.status != 400:
                raise Failed(f"{version}: a batch is answered with {answer.status}")
            continue
        found = [json.loads(text) for text in answer.texts]
        found = found[0] if len(found) == 1 and isinstance(found[0], list) else found
        if sorted(message["id"] for message in found) != sorted(m["id"] for m in messages):
            raise Failed(f"the batch is answered with {brief(found)}")


def cancelled(service, server):
    """By notification in the older eras, by hanging up in the newer."""
    for version in VERSIONS:
        session = service.session([server.id])
        one = Raw(service.gateway(session), version, service.headers())
        one.begin()
        name = server.names["slow_count"]
        message, headers = one.envelope("tools/call", {"name": name, "arguments": {"to": 100, "pause_ms": 500}})
        one.connection.request("POST", one.path, json.dumps(message), {
            "content-type": "application/json", "accept": "application/json, text/event-stream",
            **one.extra, **headers})
        wait("a running call", lambda: [r["status"] for r in service.rows(session)] == ["running"])
        began = time.monotonic()
        if version == MODERN:
            one.connection.close()
        else:
            other = Raw(one.url, version, service.headers())
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": message["id"], "reason": "enough"}}
            told = other.send("POST", json.dumps(note).encode(), headers)
            if told.status != 202:
                raise Failed(f"{version}: the notification is answered with {told.status}")
            answer = one.connection.getresponse().read()
            if b"jsonrpc" in answer:
                raise Failed(f"{version}: a cancelled request is answered: {answer[:300]!r}")
        rows = wait("a cancelled row", lambda: [
            row for row in service.rows(session) if row["status"] == "cancelled"] or None, 10)
        if len(service.rows(session)) != 1 or rows[0]["error"]["code"] != "CANCELLED":
            raise Failed(f"{version}: {brief(rows)}")
        if time.monotonic() - began > 3:
            raise Failed(f"{version}: cancelled after {time.monotonic() - began:.1f} s")


def pauses(house, service, server):
    """No exchange waits for a delayed acknowledgement. The quickest of many is judged: it would be as
    slow as the others."""
    slow = []
    for version in VERSIONS:
        one = client(service, server, version)
        took = min(timed(lambda: answered(one, server, version)) for _ in range(25))
        if took > PAUSE_MS:
            slow.append(f"raw {version}: {took:.0f} ms")
    for name in clients.CLIENTS:
        # Both begin anew for each call, which takes several exchanges.
        if clients.kind(name) in clients.LOOKS_FIRST:
            continue
        session = service.session([server.id])
        calls = [{"tool": server.names["add"], "arguments": {"a": 1, "b": n}} for n in range(25)]
        plan = {"url": service.gateway(session), "headers": service.headers(), "calls": calls}
        took = min(one["took"] for one in clients.run(house, name, plan)["ended"])
        if took > PAUSE_MS:
            slow.append(f"{name}: {took:.0f} ms")
    if slow:
        raise Failed("; ".join(slow))


def timed(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1_000
