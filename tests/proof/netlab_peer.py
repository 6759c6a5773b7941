"""A server in the lab that tells its clients to go where they should not: MCP, HTTP+SSE, and an authorization server.

`/{case}/…`: a case says what its documents name. Connections end with each answer, so that each request needs a new one."""

import http.server
import json
import ssl
import threading
import urllib.parse

HOST, PORT = "93.184.216.34", 8443
SERVER, ISSUER = f"https://peer.example.test:{PORT}", f"https://as.example.test:{PORT}"
RESOURCE_METADATA, SERVER_METADATA = "/.well-known/oauth-protected-resource/", "/.well-known/oauth-authorization-server/"


class Peer:
    def __init__(self, work):
        self.cases, self.journal = {}, []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{work}/peer.pem", f"{work}/peer.key")
        self.server = http.server.ThreadingHTTPServer((HOST, PORT), Handler)
        self.server.daemon_threads = True
        self.server.peer = self
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def case(self, name, **what):
        """`redirect`, `endpoint` (of HTTP+SSE); `pointer`, `servers`, `patch` of OAuth; nothing: open."""
        self.cases[name] = what
        return f"{SERVER}/{name}/mcp"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.answer(body)

    do_DELETE = do_GET

    def answer(self, body):
        peer, path = self.server.peer, urllib.parse.urlparse(self.path).path
        peer.journal.append((self.headers.get("host"), self.command, path))
        known = [part for part in path.split("/") if part in peer.cases]
        if not known:
            return self.say(404, {})
        name, case = known[0], peer.cases[known[0]]
        if "redirect" in case:
            status, to = case["redirect"]
            return self.say(status, {}, {"location": to})
        if path.startswith(RESOURCE_METADATA):
            return self.say(200, {"resource": f"{SERVER}/{name}/mcp", "scopes_supported": ["a"],
                                  "authorization_servers": case.get("servers", [f"{ISSUER}/{name}"])})
        if path.startswith(SERVER_METADATA):
            return self.say(200, self.metadata(name, case))
        what = path.rsplit("/", 1)[1]
        if what == "register":
            return self.say(201, {"client_id": "c", "token_endpoint_auth_method": "none"})
        if what == "token":
            return self.say(200, {"access_token": "t", "refresh_token": "r", "token_type": "Bearer",
                                  "expires_in": case.get("life", 3600)})
        if what != "mcp":
            return self.say(404, {})
        if "endpoint" in case:
            return self.stream(case["endpoint"])
        if case.get("oauth") and not self.headers.get("authorization"):
            pointer = case.get("pointer") or f"{SERVER}{RESOURCE_METADATA}{name}/mcp"
            return self.say(401, {}, {"www-authenticate": f'Bearer resource_metadata="{pointer}"'})
        return self.mcp(body)

    def metadata(self, name, case):
        base = f"{ISSUER}/{name}"
        return {"issuer": base, "authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token",
                "registration_endpoint": f"{base}/register", "revocation_endpoint": f"{base}/revoke",
                "token_endpoint_auth_methods_supported": ["none"], "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"], **case.get("patch", {})}

    def mcp(self, body):
        if self.command != "POST":
            return self.say(405, {})
        message = json.loads(body)
        if "id" not in message:
            return self.say(202, None)
        results = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "lab", "version": "1"}},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "hello from the lab"}]}}
        result = results.get(message["method"])
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        self.say(200, {"jsonrpc": "2.0", "id": message["id"], **answer})

    def stream(self, endpoint):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"event: endpoint\ndata: {endpoint}\n\n".encode())
        self.wfile.flush()
        self.rfile.read(1)

    def say(self, status, body, headers=None):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass
