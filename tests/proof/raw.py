"""A client of our own that keeps every byte, for all four protocol versions."""

import json

from house import Failed, connection

VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
MODERN = VERSIONS[-1]


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        kind = headers.get("content-type", "").split(";")[0]
        self.stream = kind == "text/event-stream"
        texts = events(body) if self.stream else [body.decode()] if body else []
        self.texts = texts if kind in ("text/event-stream", "application/json") else []

    def text(self):
        """The one response, as it was written."""
        responses = [text for text in self.texts if "id" in json.loads(text)]
        if len(responses) != 1:
            raise Failed(f"{self.status}, {len(responses)} responses: {self.body[:300]!r}")
        return responses[0]

    def message(self):
        return json.loads(self.text())


def events(body):
    """The data of each event; lines may end in any of three ways."""
    text = body.decode().replace("\r\n", "\n").replace("\r", "\n")
    data = []
    for event in text.split("\n\n"):
        lines = [line[5:].removeprefix(" ") for line in event.split("\n") if line.startswith("data:")]
        if lines:
            data.append("\n".join(lines))
    return data


class Raw:
    """One session of the protocol, over one connection."""

    def __init__(self, url, version, headers=None, record=None):
        self.url, self.version, self.extra = url, version, headers or {}
        self.connection, self.path = connection(url)
        self.session, self.count, self.record = None, 0, record

    def send(self, method, body=None, headers=None):
        self.connection.request(method, self.path, body, {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream", **self.extra, **(headers or {})})
        answer = self.connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def envelope(self, method, params, notification=False):
        message = {"jsonrpc": "2.0", "method": method}
        if not notification:
            self.count += 1
            message["id"] = self.count
        headers = {}
        if self.version == MODERN:
            params = {**(params or {}), "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {}}}
            headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
            if method == "tools/call":
                headers["mcp-name"] = params["name"]
        elif method != "initialize":
            headers["mcp-protocol-version"] = self.version
            if self.session:
                headers["mcp-session-id"] = self.session
        if params is not None:
            message["params"] = params
        return message, headers

    def ask(self, method, params=None, body=None):
        """The answer; `body` turns the message into other bytes."""
        message, headers = self.envelope(method, params)
        text = json.dumps(message)
        answer = self.send("POST", (body(text) if body else text).encode(), headers)
        if self.record is not None:
            self.record.append((self.version, method, message, answer))
        return answer

    def begin(self):
        if self.version == MODERN:
            return self.ask("server/discover").message()
        answer = self.ask("initialize", {
            "protocolVersion": self.version, "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"}})
        self.session = answer.headers.get("mcp-session-id")
        started = answer.message()
        if started["result"]["protocolVersion"] != self.version:
            raise Failed(f"asked for {self.version}, got {started['result']['protocolVersion']}")
        message, headers = self.envelope("notifications/initialized", None, True)
        done = self.send("POST", json.dumps(message).encode(), headers)
        if done.status != 202:
            raise Failed(f"notifications/initialized: {done.status}")
        return started

    def call(self, tool, arguments, body=None):
        return self.ask("tools/call", {"name": tool, "arguments": arguments}, body)


def members(text):
    """The members of a JSON object, names and values as they were written."""
    decoder, at, found = json.JSONDecoder(), skip(text, 0), []
    if text[at] != "{":
        raise Failed(f"no object: {text[:100]!r}")
    at = skip(text, at + 1)
    while text[at] != "}":
        _, end = decoder.raw_decode(text, at)
        name, at = text[at:end], skip(text, end)
        at = skip(text, at + 1)
        _, end = decoder.raw_decode(text, at)
        found.append((name, text[at:end]))
        at = skip(text, end)
        if text[at] == ",":
            at = skip(text, at + 1)
    return found


def member(text, name):
    for key, value in members(text):
        if json.loads(key) == name:
            return value
    raise Failed(f"no {name}: {text[:300]!r}")


def skip(text, at):
    while text[at] in " \t\r\n":
        at += 1
    return at
