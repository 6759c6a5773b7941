"""The rig's authorization server and protected MCP server, and people who connect to it through the service."""

import copy
import datetime
import http.cookiejar
import json
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

from house import Failed, Service, free_port, get, refusal, wait
from raw import Raw

# Knobs as they are when the rig starts (its README).
AS_KNOBS = {
    "accessTtl": 60, "refreshTtl": 3600, "rotate": True, "autoConsent": True, "user": "alice", "dcr": True, "cimd": True,
    "tokenFault": None, "tokenDelayMs": 0, "hideOAuthMeta": False, "hideOidcMeta": False, "metaStatus": None,
    "patchMeta": None, "patchReg": None, "wrongIss": None, "requireResource": False, "dcrKeepScope": False,
    "defaultScope": "mcp:read mcp:write", "grantScope": None}
RS_KNOBS = {
    "prm": "path", "prmStatus": 404, "patchPrm": None, "wwwAuth": True, "status401": 401, "scopesInChallenge": None,
    "stepUpOnly": False, "rejectNext": 0, "sessionGoneNext": 0, "toolCount": 0}
SECRET = "p:e+s%c r/t&="
GRANTS = "grant.addResourceScope(ind, keep(sc).join(' '));"
PUBLIC_CALLBACKS = "['http://127.0.0.1:7290/callback', 'http://localhost:8080/oauth/callback']"


class Rig:
    """Both of them, on ports that are free. Everything they keep is in memory."""

    def __init__(self, house, service):
        self.house, self.service = house, service
        self.folder = house.work / "oauthrig"
        shutil.copytree(house.rig / "oauthrig", self.folder)
        script = self.folder / "as.mjs"
        script.chmod(0o644)
        # Its registered clients, but with callbacks of ours, and a secret that must be encoded; and what `grantScope` does
        # not grant is refused: left open, that provider asks for it for ever.
        text = script.read_text()
        for old, new in (("'pre-basic', client_secret: 'pre-secret'", f"'pre-basic', client_secret: '{SECRET}'"),
                         (PUBLIC_CALLBACKS, "(process.env.MCP_REDIRECTS ?? 'http://localhost:1/').split(',')"),
                         (GRANTS, f"{{ {GRANTS} grant.rejectResourceScope(ind, sc.filter((one) => "
                                  "!keep(sc).includes(one)).join(' ')); }")):
            if text.count(old) != 1:
                raise Failed(f"the rig's as.mjs has changed: {old}")
            text = text.replace(old, new)
        script.write_text(text)
        (self.folder / "node_modules").symlink_to(house.rig_home / "npm/oauth/node_modules")
        self.as_port, self.rs_port = free_port(), free_port()
        self.issuer, self.base = f"http://localhost:{self.as_port}", f"http://localhost:{self.rs_port}"
        self.resource, self.count, self.rows, self.people = f"{self.base}/mcp", 0, [], {}
        self.resources = [self.resource, f"{self.base}/sse"]
        # The callback holds the id of the server, which no list made before it can name.
        self.start_as()
        env = {"RS_PORT": str(self.rs_port), "AS_ISSUER": self.issuer}
        house.peer("rs", [house.node, self.folder / "rs.mjs"], self.rs_port, env)

    def start_as(self, redirects=()):
        env = {"AS_PORT": str(self.as_port), "AS_ISSUER": self.issuer, "RESOURCES": ",".join(self.resources)}
        if redirects:
            env["MCP_REDIRECTS"] = ",".join(redirects)
        self.house.peer("as", [self.house.node, self.folder / "as.mjs"], self.as_port, env)

    def restart_as(self, redirects=()):
        """Clients, grants and refresh tokens are gone."""
        self.house.stop("as")
        self.start_as(redirects)

    def a(self, **knobs):
        post(f"{self.issuer}/__ctl", knobs)

    def r(self, **knobs):
        post(f"{self.base}/__ctl", knobs)

    def fault(self, n=1, **what):
        self.a(tokenFault={"n": n, **what})

    def reset(self):
        self.a(**AS_KNOBS, resources=self.resources)
        self.r(**RS_KNOBS)
        self.forget()

    def forget(self):
        """What both have heard so far."""
        for url in (self.issuer, self.base):
            urllib.request.urlopen(urllib.request.Request(f"{url}/__ctl/log", method="DELETE"), timeout=10).close()

    def asked(self, path=None, grant=None):
        """Requests that the authorization server got."""
        entries = [entry for entry in get(f"{self.issuer}/__ctl/log") if "path" in entry]
        return [entry for entry in entries
                if (path is None or entry["path"] == path)
                and (grant is None or (entry.get("body") or {}).get("grant_type") == grant)]

    def events(self, name):
        return [entry for entry in get(f"{self.issuer}/__ctl/log") if entry.get("ev") == name]

    def served(self, rpc=None):
        """Requests that the server got."""
        return [entry for entry in get(f"{self.base}/__ctl/log") if rpc is None or entry.get("rpc") == rpc]

    def sent(self, tool="tools/call"):
        return len([entry for entry in self.served(tool) if entry["status"] == 200])

    def refreshes(self):
        return len(self.asked("/token", "refresh_token"))

    def guessed(self):
        """Paths that nobody published."""
        entries = [*self.asked(), *self.served()]
        return [entry["path"] for entry in entries if entry["path"] in ("/register", "/authorize", "/oauth/register")]

    def server(self, path="/mcp", transport="http", url=None, oauth=None, **more):
        self.count += 1
        slug = f"oauth{self.count}"
        form = {"name": slug, "slug": slug, "transport": transport, "url": url or f"{self.base}{path}",
                "authMode": "oauth", "enabled": True, **more}
        if oauth:
            form["oauth"] = {"registration": "auto", **oauth}
        row = self.service.api("POST", "/api/mcp/servers", form)
        self.rows.append(row["id"])
        return row

    def clear(self):
        for row in self.rows:
            self.service.ask("DELETE", f"/api/mcp/servers/{row}")
        self.rows = []

    def person(self, name):
        if name not in self.people:
            self.people[name] = Someone(self, name)
        return self.people[name]


class Someone(Service):
    """A superadmin of the service, whose account at the provider has the same name."""

    def __init__(self, rig, name):
        service = rig.service
        self.rig, self.house, self.url, self.name = rig, rig.house, service.url, name
        email = f"{name}@proof.test"
        service.api("POST", "/api/users", {"email": email, "role": "superadmin"})

        def token(scopes):
            command = [rig.house.bin / "bailiwick", "token", "create", "--data-dir", service.dir,
                       "--user", email, "--scopes", scopes]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return done.stdout.strip().splitlines()[-1]

        self.admin, self.agent = token("api:read,api:write,approve,admin"), token("mcp:call,api:read")
        self.sessions = {}

    def another(self):
        """The same, with a session of its own: for another thread."""
        one = copy.copy(self)
        one.sessions = {}
        return one

    # Step by step.

    def path(self, row, rest=""):
        return f"/api/mcp/servers/{row['id']}{rest}"

    def connection(self, row):
        return self.api("GET", self.path(row, "/connection"))

    def start(self, row):
        """Where to consent, and the cookie."""
        revision = self.api("GET", self.path(row))["revision"]
        request = urllib.request.Request(
            self.url + self.path(row, "/oauth/start"), json.dumps({"revision": revision}).encode(),
            {"authorization": f"Bearer {self.admin}", "content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                cookie = answer.headers["set-cookie"].split(";")[0]
                return json.loads(answer.read())["authorizationUrl"], cookie
        except urllib.error.HTTPError as error:
            raise Refused(json.loads(error.read())) from None

    def consent(self, url, go=None):
        """Through the provider's pages; the address that it sends the browser back to, or its last status and page."""
        browser = Browser()
        url += f"&login_hint={self.name}"
        for _ in range(12):
            status, headers, page = browser.get(url)
            if status not in (301, 302, 303, 307, 308):
                if status == 200 and go:
                    url = urllib.parse.urljoin(url, f"?go={go}")
                    continue
                return None, f"{status} {page[:200]}"
            url = urllib.parse.urljoin(url, headers["location"])
            if url.startswith(self.url):
                return url, None
        raise Failed("the provider redirects for ever")

    def come_back(self, url, cookie):
        """Status and result of the callback."""
        status, headers, page = Browser(cookie).get(url)
        result = (headers.get("location") or "").partition("#result=")[2]
        return status, result, page

    def connect(self, row, go=None):
        url, cookie = self.start(row)
        back, page = self.consent(url, go)
        if back is None:
            raise Failed(f"the provider stops at: {page}")
        status, result, page = self.come_back(back, cookie)
        if status != 303:
            raise Failed(f"the callback answers {status}: {page[:200]}")
        state = self.api("POST", self.path(row, "/oauth/confirm"), {"result": result})["state"]
        if state != "connected":
            raise Failed(f"after confirm it is {state}")
        return Browser.query(url)

    # Use.

    def discover(self, row):
        self.api("POST", self.path(row, "/tools/refresh"))

    def answer(self, row, tool="whoami", arguments=None):
        """The result of a call."""
        if row["id"] not in self.sessions:
            session = self.session([row["id"]])
            client = Raw(self.gateway(session), "2025-11-25", {"Authorization": f"Bearer {self.agent}"})
            client.begin()
            self.sessions[row["id"]] = client
        return self.sessions[row["id"]].call(f"mcp__{row['slug']}__{tool}", arguments or {}).message()["result"]

    def code(self, row, tool="whoami", arguments=None):
        """Of a call that is refused; None of one that is not."""
        return refusal(self.answer(row, tool, arguments)).get("code")

    def whoami(self, row):
        result = self.answer(row)
        code = refusal(result).get("code")
        if code:
            raise Failed(f"whoami: {code} {refusal(result).get('message')}")
        return json.loads(result["content"][0]["text"])

    def in_(self, row, go=None):
        """Connects, discovers, and is who they are."""
        asked = self.connect(row, go)
        self.discover(row)
        self.is_me(row)
        return asked

    def is_me(self, row):
        told = self.whoami(row)
        if told["sub"] != self.name:
            raise Failed(f"whoami of {self.name}: {told}")
        return told

    def expired(self, row):
        """Waits until the access token is over."""
        ends = self.connection(row).get("expiresAt")
        if not ends:
            raise Failed("the connection does not say when its token ends")
        moment = Moment(ends)
        wait("the end of the token", moment.is_past, 30)


class Refused(Failed):
    """A start that leads nowhere."""

    def __init__(self, problem):
        self.code, self.step = problem.get("code"), (problem.get("details") or {}).get("step")
        super().__init__(f"{self.code} {self.step or problem.get('detail')}")


class Moment:
    def __init__(self, text):
        self.at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))

    def is_past(self):
        return datetime.datetime.now(datetime.timezone.utc) > self.at


class Browser:
    """Follows nothing by itself; keeps its cookies."""

    def __init__(self, cookie=None):
        self.cookie = cookie
        self.opener = urllib.request.build_opener(
            Stay(), urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    @staticmethod
    def query(url):
        return urllib.parse.parse_qs(urllib.parse.urlparse(url).query)

    def get(self, url):
        headers = {"accept": "text/html"}
        if self.cookie:
            headers["cookie"] = self.cookie
        try:
            answer = self.opener.open(urllib.request.Request(url, headers=headers), timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.headers, answer.read().decode(errors="replace")


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Trap:
    """A listener that nobody may reach; counts who does."""

    def __init__(self, host, port=0):
        self.socket = socket.create_server((host, port))
        self.name = f"{host}:{self.socket.getsockname()[1]}"
        self.url, self.hits = f"http://{self.name}", 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            peer, _ = self.socket.accept()
            self.hits += 1
            peer.close()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def refused(person, row, *steps):
    """The start is refused at one of these steps, and nothing is guessed."""
    try:
        person.start(row)
    except Refused as why:
        if why.step not in steps:
            raise
        if person.rig.guessed():
            raise Failed(f"{why}; but it asked {person.rig.guessed()}") from None
        return f"`{why.code}` `{why.step}`, nothing guessed"
    raise Failed("a start that should be refused sends the person away")


def expect(what, got, wanted):
    if got != wanted:
        raise Failed(f"{what}: {got!r}, wanted {wanted!r}")


def together(count, work):
    failures = []

    def run():
        try:
            work()
        except Exception as error:
            failures.append(error)
    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failed(f"{len(failures)} of {count}: {failures[0]}")
