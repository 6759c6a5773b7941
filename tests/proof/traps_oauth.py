"""Entries on discovery, registration and tokens: people, the rig's authorization server, its MCP server."""

import re
import time

from house import Failed
from oauth import SECRET, Browser, Refused, Rig, Trap, expect, refused, together

KIN = "_kin_: "


class People:
    def __init__(self, bugs):
        self.rig = Rig(bugs.house, bugs.service)
        self.alice, self.bob = self.rig.person("alice"), self.rig.person("bob")
        self.trap = Trap("127.0.0.2")

    def fresh(self, proof):
        """A proof on a rig without faults."""
        def run():
            self.rig.reset()
            try:
                return proof()
            finally:
                self.rig.reset()
                self.rig.clear()
        return run


def entries(bugs):
    people = People(bugs)
    for entry, kind, did, proof in rows(people):
        yield entry, kind, did, people.fresh(proof)


def rows(p):
    yield "D1", "discovery", "resource metadata 401 and 403 at the path, there at the root; "\
        + KIN + "400, 405, 410, 429; 500 and 503 do not count as no", lambda: candidates(p)
    yield "D1", "discovery", "all metadata of the authorization server 403; " + KIN + "401, 451", lambda: hidden(p)
    yield "D2", "stale registration", "the authorization server forgets us: no callback comes, the next start registers anew",\
        lambda: forgotten(p)
    yield "D2", "stale registration", KIN + "forgotten at the exchange and at a refresh", lambda: forgotten_later(p)
    yield "D3", "client authentication", "`client_secret_basic` alone, a secret with `:`, `+`, `%`, a space, `&`", lambda: basic(p)
    yield "D4", "token shape", "`expires_in` \"60\"; " + KIN + "absent, 0, negative, words, 60.0, beyond all years", lambda: lives(p)
    yield "D5", "resource", "`resource` required: authorize, exchange, refresh", lambda: resource(p)
    yield "D6", "refresh race", "20 calls at once after each of three expiries, rotation with reuse detection", lambda: race(p)
    yield "D7", "refresh bookkeeping", "a refresh is answered without a refresh token", lambda: kept(p)
    yield "D8", "step-up", "the challenge names only what is missing; then rights that are never granted", lambda: step_up(p)
    yield "D9", "isolation", "alice is connected, bob is not; then both", lambda: isolated(p)
    yield "D16", "SSRF", "metadata names token, registration, revocation and authorization endpoints at 127.0.0.2, 10.0.0.1, "\
        "169.254.169.254, also as https and decimal; " + KIN + "resource metadata names such an authorization server", lambda: internal(p)
    yield "D16", "SSRF", KIN + "the metadata turns internal after consent: a refresh goes where consent was given", lambda: later(p)
    yield "D17", "callback", "replayed, with a wrong state, from another browser; denied; exchange 500; " + KIN + "cut, a page", lambda: truth(p)
    yield "E1", "discovery", "OpenID discovery alone", lambda: connects(p, {"hideOAuthMeta": True})
    yield "E2", "discovery", "the authorization server is at another origin than the server", lambda: elsewhere(p)
    yield "E3", "discovery", "resource metadata at the path, no challenge", lambda: connects(p, {}, {"wwwAuth": False})
    yield "E4", "discovery", "401 without `resource_metadata`, no metadata", lambda: nothing(p)
    yield "E5", "registration", "connected three times: registered once", lambda: once(p)
    yield "E6", "registration", "the registration leaves out the scope", lambda: scope(p)
    yield "E7", "registration", "the callback at registration, authorize and exchange", lambda: callback(p)
    yield "E8", "registration", "`client_secret_expires_at` passes; then `invalid_client` at a refresh", lambda: expires(p)
    yield "E9", "registration", "client metadata documents are offered, registration is not", lambda: document(p)
    yield "E10", "registration", "disconnected and connected again: registered once", lambda: once(p, True)
    yield "E11", "client authentication", "a public client names itself in the body", lambda: public(p)
    yield "E12", "token shape", "the token comes as a form", lambda: form(p)
    yield "E13", "token shape", "Slack: `ok: false` in a 200, `token_type` user, scopes with commas; " + KIN + "a nested token", lambda: slack(p)
    yield "E14", "resource", "the resource is the root with a slash, the server compares bytes", lambda: slash(p)
    yield "E17", "schemes", "the authorization endpoint is `javascript:`; " + KIN + "`JavaScript:`, `data:`, `file:`, a user name, a tab", lambda: schemes(p)
    yield "E18", "tokens", "401 in the middle with a refresh token at hand", lambda: in_the_middle(p)
    yield "E19", "revocation", "disconnected with revocation: told to the provider, no scope comes back", lambda: revoked(p)
    yield "E21", "health check", "nobody of the askers is connected: a test, a discovery, lists", lambda: healthy(p)
    yield "E23", "isolation", "alice and bob, 20 calls each at once, sessions of the older era", lambda: interleaved(p)


def connects(p, a, r=None):
    p.rig.a(**a)
    p.rig.r(**(r or {}))
    p.alice.in_(p.rig.server())
    return "connected, `whoami` is alice"


def candidates(p):
    for status in (401, 403, 400, 405, 410, 429):
        p.rig.r(prm="root", prmStatus=status)
        p.alice.in_(p.rig.server())
    for status in (500, 503):
        p.rig.r(prm="root", prmStatus=status)
        try:
            p.alice.start(p.rig.server())
        except Refused as why:
            expect(f"{status}", why.code, "UPSTREAM_UNAVAILABLE")
        else:
            raise Failed(f"{status} is passed over")
    return "connected behind each 4xx; `UPSTREAM_UNAVAILABLE` at 5xx"


def hidden(p):
    for status in (403, 401, 451):
        p.rig.a(metaStatus=status)
        came = refused(p.alice, p.rig.server(), "authorization_server_metadata", "discovered_nothing")
    return came


def nothing(p):
    p.rig.r(prm="none", wwwAuth=False)
    return refused(p.alice, p.rig.server(), "issuer_mismatch", "discovered_nothing")


def forgotten(p):
    row = p.rig.server()
    p.alice.in_(row)
    p.rig.restart_as()
    url, _ = p.alice.start(row)
    back, page = p.alice.consent(url)
    if back:
        raise Failed(f"the provider sends back: {back[:80]}")
    p.alice.connect(row)
    p.alice.is_me(row)
    expect("registrations", len(p.rig.asked("/reg")), 1)
    return f"the provider stops ({page[:3]}); the next start registers, connected"


def forgotten_later(p):
    row = p.rig.server()
    p.rig.a(accessTtl=3)
    p.rig.fault(grant="authorization_code", status=401, body={"error": "invalid_client"})
    url, cookie = p.alice.start(row)
    expect("callback", p.alice.come_back(p.alice.consent(url)[0], cookie)[0], 400)
    p.alice.in_(row)
    expect("registrations", len(p.rig.asked("/reg")), 2)
    p.alice.expired(row)
    p.rig.fault(grant="refresh_token", status=401, body={"error": "invalid_client"})
    expect("call", p.alice.code(row), "RECONNECT_REQUIRED")
    p.alice.connect(row)
    p.alice.is_me(row)
    expect("registrations", len(p.rig.asked("/reg")), 3)
    return "registered anew each time, connected"


def preregistered(p, **oauth):
    row = p.rig.server(oauth={"registration": "preregistered", **oauth})
    p.rig.restart_as([f"{p.alice.url}/api/mcp/oauth/callback/{row['id']}"])
    p.rig.a(accessTtl=3)
    p.alice.in_(row)
    p.alice.expired(row)
    p.alice.is_me(row)
    expect("registrations", len(p.rig.asked("/reg")), 0)
    return p.rig.asked("/token")


def basic(p):
    asked = preregistered(p, clientId="pre-basic", clientSecret=SECRET)
    expect("ways", {(one.get("auth"), one["status"]) for one in asked}, {("Basic", 200)})
    return f"{len(asked)} token requests by Basic, encoded"


def public(p):
    asked = preregistered(p, clientId="pre-public")
    told = {(one.get("auth"), one["body"].get("client_id"), one["status"]) for one in asked}
    expect("ways", told, {(None, "pre-public", 200)})
    return f"{len(asked)} token requests with `client_id` in the body"


def lives(p):
    found = []
    for life, known in ((("60"), True), (None, False), (0, False), (-5, False), ("soon", False), (60.0, True), (10**12, True)):
        body = {"access_token": "x", "token_type": "Bearer"} | ({} if life is None else {"expires_in": life})
        p.rig.fault(grant="authorization_code", status=200, body=body)
        row = p.rig.server()
        p.alice.connect(row)
        ends = p.alice.connection(row).get("expiresAt")
        expect(f"expires_in {life!r} is known", bool(ends), known)
        found.append(f"{life!r}: {ends[:4] if ends and life == 10**12 else 'known' if ends else 'unknown'}")
    return "; ".join(found)


def resource(p):
    p.rig.a(requireResource=True, accessTtl=3)
    row = p.rig.server()
    asked = p.alice.in_(row)
    p.alice.expired(row)
    p.alice.is_me(row)
    told = [asked["resource"][0]] + [one["body"].get("resource") for one in p.rig.asked("/token")]
    expect("resource", (len(told), set(told)), (3, {p.rig.resource}))
    expect("aud", p.alice.whoami(row)["aud"], p.rig.resource)
    return "the same in all three, and the audience of the token"


def race(p):
    p.rig.a(accessTtl=3)
    row = p.rig.server(governance={"maxConcurrent": 32})
    p.alice.in_(row)
    for round_ in range(1, 4):
        p.alice.expired(row)
        # Long enough for the calls.
        p.rig.a(accessTtl=20 if round_ == 3 else 8)
        together(20, lambda: p.alice.another().is_me(row))
        expect("refreshes", p.rig.refreshes(), round_)
        expect("families revoked", len(p.rig.events("grant.revoked")), 0)
    return "60 calls pass, 3 refreshes, no family revoked"


def kept(p):
    p.rig.a(rotate=False, accessTtl=3)
    row = p.rig.server()
    p.alice.in_(row)
    p.alice.expired(row)
    p.rig.fault(grant="refresh_token", status=200, body={"access_token": "x", "token_type": "Bearer", "expires_in": 60})
    # The server refuses that token: the refresh token of before is used again.
    p.alice.is_me(row)
    used = {one["body"]["refresh_token"] for one in p.rig.asked("/token", "refresh_token")}
    expect("refreshes, refresh tokens", (p.rig.refreshes(), len(used)), (2, 1))
    return "the old one stays, and is good for the next refresh"


def step_up(p):
    p.rig.r(stepUpOnly=True)
    row = p.rig.server()
    p.alice.in_(row)
    delete = lambda: p.alice.code(row, "admin_delete", {"id": "1"})
    expect("before", delete(), "INSUFFICIENT_SCOPE")
    asked = set(p.alice.connect(row)["scope"][0].split())
    if not asked >= {"mcp:read", "mcp:write", "mcp:admin"}:
        raise Failed(f"asked for {asked}")
    expect("after", delete(), None)
    p.alice.is_me(row)
    p.rig.a(grantScope="mcp:read")
    other = p.rig.server()
    p.alice.in_(other)
    for _ in range(3):
        p.rig.forget()
        expect("never granted", p.alice.code(other, "admin_delete", {"id": "1"}), "INSUFFICIENT_SCOPE")
        expect("requests", len(p.rig.served("tools/call")), 1)
        p.alice.connect(other)
    p.alice.is_me(other)
    return f"asks for {' '.join(sorted(asked))}; never granted: one request a call, the connection stays"


def isolated(p):
    row = p.rig.server()
    p.alice.in_(row)
    p.rig.forget()
    expect("bob", p.bob.code(row), "CONNECTION_REQUIRED")
    expect("requests", len(p.rig.served()), 0)
    p.bob.connect(row)
    for who in (p.bob, p.alice, p.bob):
        who.is_me(row)
    return "`CONNECTION_REQUIRED`, nothing sent; then each as themselves"


def interleaved(p):
    row = p.rig.server(governance={"maxConcurrent": 32})
    p.alice.in_(row)
    p.bob.connect(row)
    turns = iter([p.alice, p.bob] * 20)
    together(40, lambda: next(turns).another().is_me(row))
    return "40 calls, each as its own person"


def internal(p):
    trap = p.trap.url
    port = trap.rsplit(":", 1)[1]
    places = [trap, f"http://10.0.0.1:{port}", "http://169.254.169.254", "https://169.254.169.254", "https://10.0.0.1",
              f"http://2130706434:{port}", f"https://[::ffff:127.0.0.2]:{port}", f"https://127.0.0.2:{port}"]
    tried = 0
    for place in places:
        for name in ("token_endpoint", "registration_endpoint", "revocation_endpoint", "authorization_endpoint"):
            p.rig.a(patchMeta={name: f"{place}/x"})
            refused(p.alice, p.rig.server(), "egress", "insecure_url")
            p.rig.clear()
            tried += 1
    p.rig.a(patchMeta=None)
    for place in places:
        p.rig.r(patchPrm={"authorization_servers": [place]})
        refused(p.alice, p.rig.server(), "egress", "insecure_url", "no_authorization_server")
        p.rig.clear()
        tried += 1
    expect("requests at the trap", p.trap.hits, 0)
    return f"{tried} starts refused, the trap hears nothing"


def later(p):
    p.rig.a(accessTtl=3)
    row = p.rig.server()
    p.alice.in_(row)
    p.rig.a(patchMeta={"token_endpoint": f"{p.trap.url}/token"})
    p.alice.expired(row)
    p.alice.is_me(row)
    expect("refreshes, trap", (p.rig.refreshes(), p.trap.hits), (1, 0))
    return "refreshed at the endpoint of the consent"


def truth(p):
    row = p.rig.server()

    def told(what, status, page, state="disconnected"):
        expect(what, status, 400)
        if re.search(r"success|is connected|are connected", page, re.I):
            raise Failed(f"{what}: the page claims it: {page[:300]}")
        expect(f"state after: {what}", p.alice.connection(row)["state"], state)

    url, cookie = p.alice.start(row)
    back, _ = p.alice.consent(url)
    for what, address, with_ in (("wrong state", re.sub(r"state=[^&]*", "state=x", back), cookie),
                                 ("another browser", back, None)):
        status, _, page = p.alice.come_back(address, with_)
        told(what, status, page)
    expect("the first", p.alice.come_back(back, cookie)[0], 303)
    status, _, page = p.alice.come_back(back, cookie)
    told("replayed", status, page)
    p.rig.a(autoConsent=False)
    url, cookie = p.alice.start(row)
    back, _ = p.alice.consent(url, "deny")
    if "error=access_denied" not in (back or ""):
        raise Failed(f"no denial: {back}")
    status, _, page = p.alice.come_back(back, cookie)
    told("denied", status, page)
    p.rig.a(autoConsent=True)
    for what, fault in (("500", {"status": 500}), ("cut", {"status": 0}), ("a page", {"status": 200, "body": "<html>"})):
        p.rig.fault(grant="authorization_code", **fault)
        url, cookie = p.alice.start(row)
        status, _, page = p.alice.come_back(p.alice.consent(url)[0], cookie)
        told(f"exchange: {what}", status, page)
    p.alice.in_(row)
    return "400 each time, nothing connected, no page claims it"


def elsewhere(p):
    p.alice.in_(p.rig.server())
    wrong = [one["path"] for one in p.rig.served() if one["path"] in ("/auth", "/token", "/reg", "/authorize", "/register")]
    expect("asked of the server", wrong, [])
    return "authorize, token and registration at the listed one alone"


def once(p, disconnect=False):
    row = p.rig.server()
    for _ in range(3):
        p.alice.in_(row)
        if disconnect:
            p.alice.api("DELETE", p.alice.path(row, "/connection"))
    expect("registrations", len(p.rig.asked("/reg")), 1)
    return "one registration"


def scope(p):
    asked = p.alice.in_(p.rig.server())["scope"][0].split()
    if not {"mcp:read", "mcp:write"} <= set(asked):
        raise Failed(f"asked for {asked}")
    return f"asks for {' '.join(asked)}"


def callback(p):
    row = p.rig.server()
    asked = p.alice.in_(row)["redirect_uri"][0]
    registered = p.rig.asked("/reg")[0]["body"]["redirect_uris"]
    exchanged = p.rig.asked("/token", "authorization_code")[0]["body"]["redirect_uri"]
    expect("callbacks", (registered, exchanged), ([asked], asked))
    expect("callback", asked, f"{p.alice.url}/api/mcp/oauth/callback/{row['id']}")
    return "one, the same byte for byte"


def expires(p):
    p.rig.a(patchReg={"client_secret_expires_at": int(time.time()) + 2})
    row = p.rig.server()
    p.alice.in_(row)
    time.sleep(2.5)
    p.rig.a(patchReg=None, accessTtl=3)
    p.alice.connect(row)
    expect("registrations", len(p.rig.asked("/reg")), 2)
    p.alice.expired(row)
    p.rig.fault(grant="refresh_token", status=401, body={"error": "invalid_client"})
    expect("call", p.alice.code(row), "RECONNECT_REQUIRED")
    p.alice.connect(row)
    p.alice.is_me(row)
    expect("registrations", len(p.rig.asked("/reg")), 3)
    return "registered anew after its end, and after `invalid_client`"


def document(p):
    p.rig.a(dcr=False)
    ours = "https://console.example/.well-known/bailiwick-client.json"
    url, _ = p.alice.start(p.rig.server(oauth={"clientMetadataUrl": ours}))
    named = Browser.query(url)["client_id"]
    expect("client_id", named, [ours])
    expect("registrations", len(p.rig.asked("/reg")), 0)
    return "the client id is the document's URL, nothing registered"


def form(p):
    p.rig.fault(grant="authorization_code", status=200, headers={"content-type": "application/x-www-form-urlencoded"},
                body="access_token=a&scope=repo%2Cgist&token_type=bearer")
    row = p.rig.server()
    p.alice.connect(row)
    expect("scopes", p.alice.connection(row)["scopes"], ["repo", "gist"])
    return "connected, scopes repo and gist"


def slack(p):
    row = p.rig.server()
    for body in ({"ok": False, "error": "invalid_code"}, {"ok": True, "authed_user": {"id": "U1"}}, {"ok": True}):
        p.rig.fault(grant="authorization_code", status=200, body=body)
        url, cookie = p.alice.start(row)
        expect(str(body), p.alice.come_back(p.alice.consent(url)[0], cookie)[0], 400)
    user = {"access_token": "xoxp", "token_type": "user", "scope": "chat:write,users:read"}
    for body in ({"ok": True, **user}, {"ok": True, "authed_user": {"id": "U1", **user}}):
        p.rig.fault(grant="authorization_code", status=200, body=body)
        p.alice.connect(row)
        expect("scopes", p.alice.connection(row)["scopes"], ["chat:write", "users:read"])
    return "`ok: false` and a token that is not there connect nothing; a user's token does, nested or not"


def slash(p):
    root = f"{p.rig.base}/"
    p.rig.a(resources=[root], accessTtl=3)
    p.rig.r(patchPrm={"resource": root})
    row = p.rig.server()
    asked = p.alice.in_(row)
    p.alice.expired(row)
    p.alice.is_me(row)
    told = {asked["resource"][0], *(one["body"].get("resource") for one in p.rig.asked("/token"))}
    expect("resource", told, {root})
    return "sent byte for byte, also at a refresh"


def schemes(p):
    host = p.rig.issuer.removeprefix("http://")
    tried = ["javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "data:text/html,x",
             "file:///etc/passwd", f"http://user@{host}/auth", f"ftp://{host}/auth"]
    for endpoint in tried:
        p.rig.a(patchMeta={"authorization_endpoint": endpoint})
        refused(p.alice, p.rig.server(), "insecure_url", "egress")
        p.rig.clear()
    return f"{len(tried)} starts refused"


def in_the_middle(p):
    row = p.rig.server()
    p.alice.in_(row)
    p.rig.forget()
    p.rig.r(rejectNext=1)
    p.alice.is_me(row)
    expect("refreshes, consents", (p.rig.refreshes(), len(p.rig.asked("/auth"))), (1, 0))
    return "one refresh, the call passes"


def revoked(p):
    row = p.rig.server()
    p.alice.in_(row)
    ended = p.alice.api("DELETE", p.alice.path(row, "/connection?revoke=true"))
    told = [one for one in p.rig.asked() if "revocation" in one["path"]]
    expect("revocation, its requests", (ended.get("revocation"), len(told) > 0), ("revoked", True))
    expect("call", p.alice.code(row), "CONNECTION_REQUIRED")
    now = p.alice.connection(row)
    expect("scopes, state", (now["scopes"], now["state"]), ([], "disconnected"))
    p.alice.in_(row)
    return f"{len(told)} revocation; `CONNECTION_REQUIRED`; connected again with a new grant"


def healthy(p):
    row = p.rig.server()
    p.alice.in_(row)
    count = lambda: len(p.alice.all(p.alice.path(row, "/tools")))
    before = count()
    tested = p.bob.api("POST", p.bob.path(row, "/test"))
    discovered = p.bob.ask("POST", p.bob.path(row, "/tools/refresh"))[0]
    status = p.alice.api("GET", p.alice.path(row))["status"]
    expect("tools, status", (count(), status), (before, "ready"))
    p.alice.is_me(row)
    return f"a test says {tested['status']}, a discovery {discovered}; {before} tools and ready stay, alice calls"
