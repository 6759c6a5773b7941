"""Calls side by side: each leaves its row, and the limits hold."""

import hashlib
import json
import threading

import clients
from house import Failed, get, post, refusal, wait
from raw import Raw


def canonical(value):
    """RFC 8785 for what is used here: ASCII names, strings without controls, small integers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(server, tool, arguments):
    request = {"input": arguments, "sourceId": server, "toolId": tool}
    return hashlib.sha256(canonical(request)).hexdigest()


def together(house, service, server, client, base, parties):
    """So many calls of one client in one session are inside the server at the same moment."""
    post(f"{base}/reset")
    session = service.session([server])
    inputs = [{"number": number, "parties": parties} for number in range(parties)]
    plan = {"url": service.gateway(session), "headers": service.headers(), "together": True,
            "calls": [{"tool": "mcp__meeting__meet", "arguments": one, "timeout": 90} for one in inputs]}
    ended = clients.run(house, client, plan)["ended"]
    numbers = sorted(numbers_of(ended))
    if numbers != list(range(parties)):
        wrong = [one for one in ended if one.get("result", {}).get("isError", True)]
        raise Failed(f"{len(numbers)} of {parties} answers; {json.dumps(wrong[:1])[:400]}")
    journal = get(f"{base}/journal")
    if journal["most"] != parties or sorted(journal["executed"]) != list(range(parties)):
        raise Failed(f"at the server: {journal['most']} together, {len(journal['executed'])} executed")
    rows = service.rows(session)
    expected = {digest(server, "meet", one) for one in inputs}
    found = [row["requestDigest"] for row in rows]
    if len(expected) != parties or len(found) != parties or set(found) != expected:
        raise Failed(f"{len(rows)} rows, {len(set(found) & expected)} digests match of {parties}")
    if {row["status"] for row in rows} != {"succeeded"}:
        raise Failed(f"rows are {[row['status'] for row in rows]}")
    authorizations = {row["permissionAuthorizationId"] for row in rows}
    if len(authorizations) != parties or None in authorizations:
        raise Failed(f"{len(authorizations)} authorizations for {parties} calls")
    return f"{parties} rows, {parties} digests as computed here"


def numbers_of(ended):
    for one in ended:
        result = one.get("result", {})
        if not result.get("isError", True):
            yield result["structuredContent"]["number"]


def queue(service, server, base, slug):
    """Default limits: one runs, eight wait, the rest is refused at once."""
    post(f"{base}/reset")
    session = service.session([server])
    refused, ended, lock = [], [], threading.Lock()

    def call(number):
        client = Raw(service.gateway(session), "2025-11-25", service.headers())
        client.begin()
        result = client.call(f"mcp__{slug}__hold", {"number": number}).message()["result"]
        with lock:
            error = refusal(result)
            (refused if error else ended).append(error or result["structuredContent"]["result"])

    callers = [threading.Thread(target=call, args=(number,)) for number in range(20)]
    for caller in callers:
        caller.start()
    try:
        wait("11 refusals", lambda: len(refused) == 11, 20)
        if ended:
            raise Failed(f"{len(ended)} calls ended while the first was held")
    finally:
        post(f"{base}/release")
        for caller in callers:
            caller.join()
    if {error["code"] for error in refused} != {"RATE_LIMIT_QUEUE_FULL"}:
        raise Failed(f"refused with {refused}")
    if not all(error["retryable"] for error in refused):
        raise Failed("a full queue is not said to be retryable")
    executed = get(f"{base}/journal")
    if len(executed["executed"]) != 9 or len(ended) != 9 or sorted(executed["executed"]) != sorted(ended):
        raise Failed(f"{len(executed['executed'])} executed, {len(ended)} answered")
    rows = service.rows(session)
    states = sorted((row["status"], (row.get("error") or {}).get("code") or "") for row in rows)
    expected = [("failed", "RATE_LIMIT_QUEUE_FULL")] * 11 + [("succeeded", "")] * 9
    if states != expected:
        raise Failed(f"{len(rows)} rows: {states}")
    expected = {digest(server, "hold", {"number": number}) for number in range(20)}
    if {row["requestDigest"] for row in rows} != expected:
        raise Failed("the digests are not those of the 20 inputs")
    sent = [row for row in rows if row["attempts"]]
    if len(sent) != 9:
        raise Failed(f"{len(sent)} rows show an attempt")
    waited = sum(row["queueWaitMs"] > 0 for row in rows if row["status"] == "succeeded")
    return f"9 executed, 11 refused, 20 rows; {waited} waited"
