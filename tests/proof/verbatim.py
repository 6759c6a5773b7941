"""What passes keeps its bytes: results of a peer that no SDK wrote, and arguments sent to it."""

import json

from house import Failed, free_port, get
from peers import INVOCATION
from raw import MODERN, VERSIONS, Raw, member, members

# Arguments as a client may write them: numbers that no double holds, escapes, odd order.
ARGUMENTS = (
    '{"z":1,"big":123456789012345678901234567890,"float":1.10e+2,"minus":-0.0,'
    '"text":"\\u00e9\\/\\ud83d\\ude00","deep":{"b":[1, 2 ,3],"a":null}}'
)


def start(house, service):
    """One registration for each protocol version that the peer speaks."""
    port = free_port()
    house.peer("verbatim", [house.python("mcp1"), house.here / "servers" / "verbatim.py", port], port)
    url = f"http://127.0.0.1:{port}"
    return url, {version: service.register(f"verbatim-{version}", f"{url}/{version}")["id"]
                 for version in VERSIONS}


def results(service, url, servers, record):
    """Each client version against each server version."""
    session = service.session(list(servers.values()))
    for version in VERSIONS:
        client = Raw(service.gateway(session), version, service.headers(), record)
        client.begin()
        client.ask("tools/list")
        for spoken, tool in ((v, f"mcp__verbatim-{v}__odd") for v in VERSIONS):
            direct = Raw(f"{url}/{spoken}", spoken)
            direct.begin()
            expected = member(direct.call("odd", {}).text(), "result")
            found = member(client.call(tool, {}).text(), "result")
            compare(f"{version} client, {spoken} server", expected, found, version)
    return f"{len(VERSIONS) ** 2} pairs of versions"


def compare(where, expected, found, version):
    kept = members(found)
    for at, (name, value) in enumerate(kept):
        if json.loads(name) == "_meta":
            marked = members(value)
            if json.loads(marked[-1][0]) != INVOCATION:
                raise Failed(f"{where}: the id of the invocation is not the last of _meta")
            kept[at] = (name, marked[:-1])
    wanted = [(name, members(value) if json.loads(name) == "_meta" else value)
              for name, value in members(expected)]
    # The one thing that a version asks of us.
    if version == MODERN and ('"resultType"', '"complete"') not in wanted:
        wanted.append(('"resultType"', '"complete"'))
    if kept != wanted:
        raise Failed(f"{where}: sent {wanted}, arrived {kept}")


def arguments(service, url, servers):
    session = service.session(list(servers.values()))
    for version in VERSIONS:
        client = Raw(service.gateway(session), version, service.headers())
        client.begin()
        for spoken in VERSIONS:
            tool = f"mcp__verbatim-{spoken}__mirror"
            answer = client.call(tool, {"here": 1}, lambda text: text.replace('{"here": 1}', ARGUMENTS))
            found = member(member(answer.text(), "result"), "structuredContent")
            if found != ARGUMENTS:
                raise Failed(f"{version} client, {spoken} server: sent {ARGUMENTS}, arrived {found}")


def journal(url):
    return get(f"{url}/__log")
