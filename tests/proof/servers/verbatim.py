"""An MCP server of no SDK, which says what no SDK would: verbatim.py PORT. Its path is the protocol
version that it speaks (/2025-11-25); GET /__log tells what it was sent, as it was written."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODERN = "2026-07-28"
LOG = []

# Numbers that no double holds, escapes, an unknown content type, unknown members at every level,
# members in odd order, white space and a line end within, a name twice where it does no harm.
ODD = (
    '{"hologram":{"depth":123456789012345678901234567890,"ratio":1.10e+400,"minus":-0.0},'
    '"content":[{"type":"hologram","uri":"holo:\\/\\/1","frames":[1 , 2,\n 3],"x":1e5,"x":1E5},'
    '{"text":"\\u00e9\\ud83d\\ude00é \\u2028","type":"text","unknown":{"a":[]}},'
    '{"type":"text","text":"plain","annotations":{"audience":["nobody"],"novel":true}}],'
    '"structuredContent":{"big":987654321098765432109876543210,"tiny":1.0,"nested":{"z":1,"a":2}},'
    '"isError":false,"_meta":{"peer.example/trace":{"id":340282366920938463463374607431768211456}},'
    '"zeta":null}'
)
MODERN_ODD = ODD[:-1] + ',"resultType":"complete"}'

TOOLS = [
    {"name": "odd", "description": "says odd things", "inputSchema": {"type": "object"}},
    {"name": "mirror", "description": "says what it was sent", "inputSchema": {"type": "object"}},
]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def say(self, status, text="", headers=None):
        body = text.encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/__log":
            return self.say(200, json.dumps(LOG))
        return self.say(405)

    def do_DELETE(self):
        self.say(200)

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        version, message = self.path.strip("/"), json.loads(text)
        LOG.append({"version": version, "text": text, "headers": dict(self.headers.items())})
        if "id" not in message:
            return self.say(202)
        answer = self.answer(version, message["method"], text)
        identified = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},{answer}}}'
        session = {"mcp-session-id": "one"} if message["method"] == "initialize" else {}
        # Its refusals are the statuses of the version that it speaks.
        status = 400 if '"error"' == answer[:7] and version == MODERN else 200
        return self.say(status, identified, session)

    def answer(self, version, method, text):
        modern = version == MODERN
        if method == "initialize" and not modern:
            return '"result":' + json.dumps({
                "protocolVersion": version, "capabilities": {"tools": {}},
                "serverInfo": {"name": "verbatim", "version": "1"}})
        if method == "server/discover" and modern:
            return '"result":' + json.dumps({
                "resultType": "complete", "supportedVersions": [MODERN], "ttlMs": 0,
                "cacheScope": "private", "capabilities": {"tools": {}}})
        if method == "tools/list":
            more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if modern else {}
            return '"result":' + json.dumps({"tools": TOOLS, **more})
        if method == "tools/call":
            sent = json.loads(text)["params"]
            if sent["name"] == "odd":
                return '"result":' + (MODERN_ODD if modern else ODD)
            at = text.index('"arguments":') + len('"arguments":')
            _, end = json.JSONDecoder().raw_decode(text, at)
            more = ',"resultType":"complete"' if modern else ""
            return f'"result":{{"content":[],"structuredContent":{text[at:end]}{more}}}'
        return '"error":{"code":-32601,"message":"no such method"}'


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
