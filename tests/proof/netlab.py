"""The egress guard, switched on, among addresses that nobody may reach. Runs inside the lab's namespace."""

import argparse
import json
import pathlib
import sys
import traceback
import urllib.parse

from house import Failed, House, Service
from netlab_peer import PORT, Peer
from oauth import Refused, Someone, Trap

HEAD = """# The network lab

Written by `make proof` (tests/proof/netlab.sh) where root and network namespaces are at hand. `bailiwick up` runs with
its guard on, with nothing listed and then with everything listed, in the rig's `netlab.sh`: a namespace with public addresses, an intranet (10.1.2.3), a metadata
trap (169.254.169.254) and a DNS that alternates, mixes and lies. A server at a public address (tests/proof/netlab_peer.py, TLS of a
scratch authority in `BAILIWICK_EXTRA_CA`) names those addresses wherever a peer can name one. Listeners wait at each; the
environment names a proxy, which is one more.

| what was tried | what came | |
|---|---|:-:|
"""

# Where nobody may get: literal, in other spellings, by name.
LITERALS = [f"https://{host}:{PORT}/x" for host in
            ("127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]", "[::ffff:10.1.2.3]", "[::ffff:a9fe:a9fe]", "2130706433",
             "0x7f.1", "127.1", "0.0.0.0", "localhost")] + ["http://169.254.169.254/latest/meta-data/", "http://10.1.2.3/a.txt"]
NAMES = [f"https://{name}.test:{PORT}/x" for name in ("a.meta", "a.lan")]
FORBIDDEN = LITERALS + NAMES


class Lab:
    def __init__(self, house):
        self.house, self.peer = house, Peer(house.work)
        self.traps = [Trap(host, PORT) for host in ("127.0.0.1", "10.1.2.3", "169.254.169.254")]
        self.traps += [Trap("127.0.0.1", 80), Trap("127.0.0.1", 3128)]
        self.service = Service(house)
        proxy = "http://127.0.0.1:3128"
        self.service.env = {"BAILIWICK_EXTRA_CA": str(house.work / "ca.pem"), "NO_PROXY": "", "no_proxy": ""}
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            self.service.env |= {name: proxy, name.lower(): proxy}
        self.rows, self.count, self.lines, self.failures = [], 0, [], []

    def start(self):
        self.service.start()
        # Of a person it needs to know no more.
        self.someone = Someone(self, "ann")

    # What is tried.

    def save(self, url, **more):
        """The server, or None where its address is refused at once."""
        self.count += 1
        form = {"name": f"lab{self.count}", "slug": f"lab{self.count}", "transport": "http", "url": url, "authMode": "none",
                "enabled": True, **more}
        status, row = self.service.ask("POST", "/api/mcp/servers", form)
        if status == 422:
            return None
        if status != 201:
            raise Failed(f"{url}: {status} {json.dumps(row)[:200]}")
        self.rows.append(row["id"])
        return row

    def test(self, row):
        checked = self.service.api("POST", f"/api/mcp/servers/{row['id']}/test")
        return "ready" if checked["status"] == "ready" else checked["error"]["code"]

    def outcome(self, url, **more):
        row = self.save(url, **more)
        return "refused when saved" if row is None else self.test(row)

    def never_ready(self, outcomes, allowed):
        wrong = {where: code for where, code in outcomes.items() if code not in allowed}
        if wrong:
            raise Failed(f"{wrong}")
        counts = {code: list(outcomes.values()).count(code) for code in dict.fromkeys(outcomes.values())}
        return "; ".join(f"`{code}` {count}" if code[0].isupper() else f"{code} {count}" for code, count in counts.items())

    def clear(self):
        for row in self.rows:
            self.service.ask("DELETE", f"/api/mcp/servers/{row}")
        self.rows = []

    def heard(self):
        """What the listeners and the rig's own servers there got."""
        heard = {trap.name: trap.hits for trap in self.traps if trap.hits}
        for host in ("10.1.2.3", "169.254.169.254"):
            log = self.house.rig_home / "run" / "netlab" / f"http_{host}.log"
            lines = [line for line in log.read_text().splitlines() if '"' in line]
            if lines:
                heard[log.name] = lines[0]
        return heard

    def prove(self, what, proof):
        verdict = "✓"
        try:
            came = proof()
            if self.heard():
                raise Failed(f"reached: {self.heard()} ({came})")
        except Exception as error:
            if not isinstance(error, Failed):
                traceback.print_exc()
            verdict, came = "✗", str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            self.failures.append(f"{what}: {came}")
        finally:
            self.clear()
        self.lines.append((what, came, verdict))
        print(f"{verdict} {what}: {came}", flush=True)

    # OAuth.

    def oauth(self, name, **case):
        url = self.peer.case(name, oauth=True, **case)
        return self.save(url, authMode="oauth")

    def start_code(self, row):
        try:
            self.someone.start(row)
        except Refused as why:
            return f"{why.code} {why.step}"
        return "sent away"

    def come_back(self, row):
        """As the provider would send the browser back; status and result."""
        url, cookie = self.someone.start(row)
        asked = urllib.parse.parse_qs(urllib.parse.urlparse(url).query)
        back = f"{asked['redirect_uri'][0]}?code=c&state={asked['state'][0]}"
        status, result, _ = self.someone.come_back(back, cookie)
        return status, result

    def connect(self, row):
        status, result = self.come_back(row)
        if status != 303:
            return status
        self.someone.api("POST", self.someone.path(row, "/oauth/confirm"), {"result": result})
        return 303

    def run(self):
        self.configured()
        self.learned("")
        # All that an operator can list, and what peers name is worth no more.
        self.house.stop("bailiwick")
        self.service.env["BAILIWICK_EGRESS_ALLOW"] = "0.0.0.0/0,::/0"
        self.service.start()
        self.listed()
        self.learned("everything listed: ")

    def listed(self):
        never = [url for url in FORBIDDEN if any(part in url for part in ("169.254", "a9fe", "0.0.0.0", "meta"))]
        never += [f"{self.service.url}/mcp", self.service.url.replace("127.0.0.1", "localhost") + "/readyz"]
        self.prove(f"everything listed: {len(never)} configured addresses of metadata and of our own",
                   lambda: self.never_ready({url: self.outcome(url) for url in never},
                                            {"refused when saved", "SERVER_MISCONFIGURED"}))

    def configured(self):
        prove = self.prove
        misconfigured = {"refused when saved", "SERVER_MISCONFIGURED"}

        def control():
            url = self.peer.case("plain")
            row = self.save(url)
            if self.test(row) != "ready":
                raise Failed("the lab itself does not work")
            return "ready: what may be reached is"
        prove("control: the public server, over TLS of the extra authority", control)
        prove(f"{len(FORBIDDEN)} configured addresses: literal, in other spellings, by name",
              lambda: self.never_ready({url: self.outcome(url) for url in FORBIDDEN}, misconfigured))

        def mixed():
            row = self.save(f"https://a.mixed.test:{PORT}/plain/mcp")
            return self.never_ready({number: self.test(row) for number in range(6)}, {"ready"})
        prove("a name with a public and a loopback address: the public one alone is tried", mixed)

        def rebind():
            row = self.save(f"https://b.rebind.test:{PORT}/plain/mcp")
            came = self.never_ready({number: self.test(row) for number in range(12)}, {"ready", "SERVER_MISCONFIGURED"})
            reached = len([host for host, _, _ in self.peer.journal if host.startswith("b.rebind.test")])
            if not reached or "SERVER_MISCONFIGURED" not in came:
                raise Failed(f"the name did not change its address: {came}, {reached} requests at the public one")
            return f"{came}; what was sent came to the public address"
        prove("a name that alternates with 127.0.0.1, 12 tests of several connections each", rebind)

    def learned(self, listed):
        lab = self

        def prove(what, proof):
            lab.prove(listed + what, proof)

        def redirects():
            outcomes = {}
            for number, to in enumerate([*FORBIDDEN, f"https://c.rebind.test:{PORT}/plain/mcp", "http://peer.example.test/a.txt"]):
                for status in (301, 302, 303, 307, 308):
                    url = self.peer.case(f"redirect{number}x{status}", redirect=(status, to))
                    outcomes[f"{status} {to}"] = self.outcome(url)
                    self.clear()
            return self.never_ready(outcomes, {"UPSTREAM_FORMAT"})
        prove("redirects to each of them, 301 to 308", redirects)

        def endpoints():
            outcomes = {}
            for number, to in enumerate([*FORBIDDEN, f"https://d.rebind.test:{PORT}/x", "//169.254.169.254/x"]):
                url = self.peer.case(f"sse{number}", endpoint=to)
                outcomes[to] = self.outcome(url, transport="sse")
            return self.never_ready(outcomes, {"UPSTREAM_FORMAT", "SERVER_MISCONFIGURED"})
        prove("the `endpoint` event of an HTTP+SSE server", endpoints)

        def pointers():
            outcomes = {}
            for number, to in enumerate(FORBIDDEN):
                row = self.oauth(f"pointer{number}", pointer=to)
                came = self.start_code(row)
                outcomes[to] = "passed over for the place of RFC 9728" if came == "sent away" else came
            return self.never_ready(outcomes, {"OAUTH_DISCOVERY_FAILED egress", "OAUTH_DISCOVERY_FAILED insecure_url",
                                               "passed over for the place of RFC 9728"})
        prove("`resource_metadata` of a challenge", pointers)

        def issuers():
            outcomes = {}
            for number, to in enumerate(FORBIDDEN):
                row = self.oauth(f"issuer{number}", servers=[to])
                outcomes[to] = self.start_code(row)
            return self.never_ready(outcomes, {"OAUTH_DISCOVERY_FAILED egress", "OAUTH_DISCOVERY_FAILED insecure_url",
                                               "OAUTH_DISCOVERY_FAILED authorization_server_metadata"})
        prove("`authorization_servers` of resource metadata", issuers)

        def named(member, tried):
            outcomes = {}
            for number, to in enumerate(FORBIDDEN):
                row = self.oauth(f"{member.replace('_', '-')}{number}", patch={member: to})
                outcomes[to] = tried(row)
            return self.never_ready(outcomes, {"OAUTH_DISCOVERY_FAILED egress", "OAUTH_DISCOVERY_FAILED insecure_url",
                                               "refused at the exchange", "failed"})

        def exchanged(row):
            try:
                return "refused at the exchange" if lab.connect(row) == 400 else "exchanged"
            except Refused as why:
                return f"{why.code} {why.step}"

        def revoked(row):
            try:
                lab.connect(row)
            except Refused as why:
                return f"{why.code} {why.step}"
            return lab.someone.api("DELETE", lab.someone.path(row, "/connection?revoke=true"))["revocation"]

        prove("`registration_endpoint` of an authorization server", lambda: named("registration_endpoint", lab.start_code))
        prove("`token_endpoint`", lambda: named("token_endpoint", exchanged))
        prove("`revocation_endpoint`", lambda: named("revocation_endpoint", revoked))

        def turned():
            self.peer.journal.clear()
            row = self.oauth("turned", patch={"token_endpoint": f"https://e.rebind.test:{PORT}/turned/token"}, life=1)
            if self.connect(row) != 303:
                raise Failed("the exchange, at the public address, failed")
            self.someone.expired(row)
            code = self.someone.ask("POST", self.someone.path(row, "/tools/refresh"))[1]
            asked = [host for host, _, path in self.peer.journal if path == "/turned/token"]
            if (code or {}).get("code") is None or len(asked) != 1:
                raise Failed(f"{code}, token requests {asked}")
            return f"exchanged at the public address; the refresh is `{code['code']}`"
        prove("a token endpoint whose name turns to 127.0.0.1 between exchange and refresh", turned)

    def page(self):
        cell = lambda words: " ".join(str(words).split()).replace("|", "\\|")
        rows = "".join("| " + " | ".join(map(cell, line)) + " |\n" for line in self.lines)
        return f"{HEAD}{rows}\nWhat the listeners at {', '.join(trap.name for trap in self.traps)} and the rig's servers on port 80 " \
            f"of 10.1.2.3 and 169.254.169.254 heard: {self.heard() or 'nothing'}.\n"


def main():
    parser = argparse.ArgumentParser()
    for name in ("rig", "rig-home", "bin", "work", "out"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    house = House(options.rig, options.rig_home, options.bin, options.work)
    lab = Lab(house)
    try:
        lab.start()
        lab.run()
    finally:
        house.stop_all()
    pathlib.Path(options.out).write_text(lab.page())
    for failure in lab.failures:
        print(f"✗ {failure}")
    sys.exit(1 if lab.failures else 0)


if __name__ == "__main__":
    main()
