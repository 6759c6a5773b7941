"""A question reaches the person while a real client waits, and the answer reaches the client."""

import clients
from house import Failed, refusal, wait

DENIED = "PERMISSION_DENIED"

def check_denied(row):
    if row["status"] != "failed" or row["error"]["code"] != DENIED or row["attempts"]:
        raise Failed(f"denied, the row is {row}")


def begun(house, client, plan):
    if clients.kind(client) == "inspector":
        era = clients.CLIENTS[client][1]
        process = clients.begin_inspect(house, plan, era, clients.call_arguments(plan["calls"][0]))
        return lambda: clients.end_inspect(process)
    process = clients.begin(house, client, plan)
    return lambda: clients.end(process)["ended"][0]


def pending(service, session):
    path = f"/api/permission-requests?sessionId={session}&state=pending"
    return service.api("GET", path)["items"] or None


def asked(house, service, server, client, decision):
    """One call that is asked about, and decided so."""
    session = service.session([server.id], "ask_for_dangerous")
    plan = {"url": service.gateway(session), "headers": service.headers(), "list": False,
            "calls": [{"tool": server.names["add"], "arguments": {"a": 1, "b": 2}}]}
    end = begun(house, client, plan)
    questions = wait("the question", lambda: pending(service, session), 60)
    if len(questions) != 1:
        raise Failed(f"{len(questions)} questions for one call")
    question = questions[0]
    if question["input"] != {"a": 1, "b": 2} or question["ownerKind"] != "gateway":
        raise Failed(f"the question shows {question}")
    rows = service.rows(session)
    if [row["status"] for row in rows] != ["waiting"]:
        raise Failed(f"while it is asked, the rows are {rows}")
    answer = service.api("POST", f"/api/permission-requests/{question['id']}/decision",
                         {"decision": decision})
    ended = end()
    rows = service.rows(session)
    if len(rows) != 1 or rows[0]["permissionAuthorizationId"] != answer["authorization"]["id"]:
        raise Failed(f"the row does not show the authorization: {rows}")
    result = ended.get("result")
    if result is None:
        raise Failed(f"the client has {ended}")
    if decision == "deny":
        error = refusal(result)
        if not result.get("isError") or error.get("code") != DENIED:
            raise Failed(f"denied, the client has {result}")
        check_denied(rows[0])
        return
    if result.get("isError") or result["structuredContent"] != {"result": 3}:
        raise Failed(f"allowed, the client has {result}")
    if decision == "allow_matching":
        # The grant stands: nobody is asked again.
        again = begun(house, client, plan)()
        if again.get("result", {}).get("structuredContent") != {"result": 3}:
            raise Failed(f"under the grant, the client has {again}")
        if pending(service, session):
            raise Failed("a grant stands, and it was asked again")
