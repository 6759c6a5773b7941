"""Whether messages are what the published schema of their protocol version says."""

import json
import pathlib

from jsonschema import validators

from house import Failed
from raw import MODERN

RESULTS = {"initialize": "InitializeResult", "tools/list": "ListToolsResult",
           "tools/call": "CallToolResult", "server/discover": "DiscoverResult"}
REQUESTS = {"initialize": "InitializeRequest", "tools/list": "ListToolsRequest",
            "tools/call": "CallToolRequest", "server/discover": "DiscoverRequest",
            "notifications/initialized": "InitializedNotification",
            "notifications/cancelled": "CancelledNotification"}


class Schemas:
    def __init__(self, folder):
        self.documents = {path.stem: json.loads(path.read_text())
                          for path in pathlib.Path(folder).glob("*.json")}
        self.counted = {version: 0 for version in self.documents}

    def check(self, version, name, value, where):
        document = self.documents[version]
        key = "$defs" if "$defs" in document else "definitions"
        if name not in document[key]:
            raise Failed(f"{version} has no {name}")
        schema = {**document, "$ref": f"#/{key}/{name}"}
        # Beside a $ref, draft-07 reads nothing else; the definitions are still found.
        kind = validators.validator_for(document)
        wrong = next(iter(sorted(kind(schema).iter_errors(value), key=lambda e: -len(e.path))), None)
        if wrong is not None:
            path = "/".join(map(str, wrong.absolute_path))
            raise Failed(f"{where}: {version} {name} at /{path}: {wrong.message[:300]}")
        self.counted[version] += 1

    def envelope(self, version, error):
        if not error:
            names = ["JSONRPCResultResponse", "JSONRPCResponse"]
        else:
            names = ["JSONRPCErrorResponse", "JSONRPCError"]
        document = self.documents[version]
        known = document.get("$defs") or document["definitions"]
        # In 2025-11-25 and later, JSONRPCResponse is either of both.
        return next(name for name in names if name in known)

    def answers(self, record):
        """What clients were answered. Content of a type that a version does not have is passed on all the
        same, and no subject of its schema."""
        for version, method, _, answer in record:
            message = json.loads(answer.text())
            where = f"the answer to {method}"
            self.check(version, self.envelope(version, "error" in message), message, where)
            if "result" in message and not self.foreign(version, message["result"]):
                self.check(version, RESULTS[method], message["result"], where)

    def foreign(self, version, result):
        known = {"text", "image", "resource"}
        if version != "2025-03-26":
            known |= {"resource_link"}
        if "AudioContent" in (self.documents[version].get("$defs") or self.documents[version]["definitions"]):
            known.add("audio")
        return any(block.get("type") not in known for block in result.get("content", []))

    def sent(self, journal):
        """What a server was sent, and with which headers."""
        for entry in journal:
            version, message = entry["version"], json.loads(entry["text"])
            headers = {name.lower(): value for name, value in entry["headers"].items()}
            method = message["method"]
            if method == "server/discover" and version != MODERN:
                continue  # The question whether it is of the newer era.
            if method not in REQUESTS:
                raise Failed(f"{version}: {method} was sent")
            self.check(version, REQUESTS[method], message, f"what we sent, {method}")
            expected = None if method == "initialize" else version
            if headers.get("mcp-protocol-version") not in (expected, version):
                raise Failed(f"{method} to {version} says {headers.get('mcp-protocol-version')}")
            if version == MODERN and headers.get("mcp-method") != method:
                raise Failed(f"{method} to {version} says Mcp-Method {headers.get('mcp-method')}")
            named = message.get("params", {}).get("name")
            if version == MODERN and named and headers.get("mcp-name") != named:
                raise Failed(f"{named} is called {headers.get('mcp-name')} in Mcp-Name")
            if version != MODERN and method not in ("initialize",) and headers.get("mcp-session-id") != "one":
                raise Failed(f"{method} to {version} names session {headers.get('mcp-session-id')}")
            bearer = headers.get("authorization")
            if bearer:
                raise Failed("our client's bearer token went upstream")
