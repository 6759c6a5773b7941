"""The cases of the rig's oauthrig/selftest.sh, through the service."""

import argparse
import json
import pathlib
import sys
import traceback

from house import Failed, House, Service, refusal
from oauth import Browser, Rig, refused

HEAD = """# The authorization server of the rig

Written by `make proof` (tests/proof/oauthrig.sh). Each case of the rig's `oauthrig/selftest.sh` goes through a running
`bailiwick up`: a person connects to the rig's MCP server (TypeScript SDK) at the rig's authorization server
(oidc-provider) by REST as a browser would, and calls `whoami` at the gateway. The self-test records what two versions
of a client library do, right or wrong; here stands what must come, and what came. A proof fails where the fault was not seen
by the authorization server or the MCP server itself.

| case | fault | what came | |
|---|---|---|:-:|
"""


class Cases:
    def __init__(self, rig):
        self.rig, self.alice = rig, rig.person("alice")
        self.lines, self.failures = [], []

    def case(self, name, fault, proof):
        self.rig.reset()
        verdict = "✓"
        try:
            came = proof()
        except Exception as error:
            if not isinstance(error, Failed):
                traceback.print_exc()
            verdict, came = "✗", str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            self.failures.append(f"{name}: {came}")
        finally:
            self.rig.reset()
            self.rig.clear()
        self.lines.append((name, fault, came, verdict))
        print(f"{verdict} {name}: {came}", flush=True)

    def run(self):
        rig, alice = self.rig, self.alice

        def seen(what, so):
            if not so:
                raise Failed(f"the fault was not seen: {what}")

        def connects(note, *proofs):
            alice.in_(rig.server())
            for what, proof in proofs:
                seen(what, proof())
            return note

        def hidden(knob, path):
            rig.a(**{knob: True})
            seen(f"{path} is hidden", Browser().get(f"{rig.issuer}/.well-known/{path}")[0] == 404)
            alice.in_(rig.server())
            return "connected by the other one"

        self.case("baseline", "none", lambda: connects("connected, `whoami` is alice"))
        self.case("oidc-discovery-only", "RFC 8414 metadata is 404",
                  lambda: hidden("hideOAuthMeta", "oauth-authorization-server"))
        self.case("rfc8414-only", "OpenID discovery is 404", lambda: hidden("hideOidcMeta", "openid-configuration"))

        def metadata_403():
            rig.a(metaStatus=403)
            came = refused(alice, rig.server(), "authorization_server_metadata", "discovered_nothing")
            seen("403", any(one["status"] == 403 for one in rig.asked()))
            return came
        self.case("metadata-403", "all metadata is 403", metadata_403)

        def root_only():
            rig.r(prm="root")
            alice.in_(rig.server())
            tried = [one for one in rig.served() if one["path"].endswith("oauth-protected-resource/mcp")]
            seen("404 at the path", any(one["status"] == 404 for one in tried))
            return "connected"
        self.case("prm-root-only", "resource metadata at the root alone", root_only)

        def mismatch():
            rig.r(prm="wrong")
            came = refused(alice, rig.server(), "resource_mismatch")
            seen("nobody is asked to register us", not rig.asked("/reg"))
            return came
        self.case("prm-resource-mismatch", "metadata of another resource", mismatch)

        def nothing():
            rig.r(prm="none", wwwAuth=False)
            came = refused(alice, rig.server(), "issuer_mismatch", "discovered_nothing")
            seen("404", any(one["status"] == 404 for one in rig.served()))
            return came
        self.case("no-prm-no-challenge", "neither metadata nor challenge", nothing)

        def wrong_iss():
            rig.a(wrongIss="https://evil.example")
            row = rig.server()
            url, cookie = alice.start(row)
            back, _ = alice.consent(url)
            seen("evil.example", back and "evil.example" in back)
            status, _, _ = alice.come_back(back, cookie)
            if status != 400 or rig.asked("/token"):
                raise Failed(f"the callback answers {status}, {len(rig.asked('/token'))} codes were given away")
            return "the callback is refused before the code is given away"
        self.case("rfc9207-wrong-iss", "`iss` of another issuer", wrong_iss)

        def no_registration():
            rig.a(dcr=False)
            came = refused(alice, rig.server(), "registration_not_offered")
            seen("no registration", not rig.asked("/reg"))
            return came
        self.case("dcr-disabled", "no registration endpoint, and we have no https document", no_registration)

        def no_s256():
            rig.a(patchMeta={"code_challenge_methods_supported": None})
            return refused(alice, rig.server(), "pkce_s256_not_listed")
        self.case("no-s256-advertised", "PKCE is not listed", no_s256)

        def pinned():
            rig.a(dcrKeepScope=True)
            row = rig.server()
            alice.in_(row)
            code = alice.code(row, "admin_delete", {"id": "1"})
            needs = alice.connection(row)["needsScopes"]
            url, cookie = alice.start(row)
            back, _ = alice.consent(url)
            seen("invalid_scope", back and "invalid_scope" in back)
            status, _, _ = alice.come_back(back, cookie)
            if (code, status) != ("INSUFFICIENT_SCOPE", 400) or "mcp:admin" not in needs:
                raise Failed(f"the call gives {code}, needs {needs}, the callback {status}")
            alice.is_me(row)
            return "`INSUFFICIENT_SCOPE`; the step-up is refused at the callback, the connection stays and works"
        self.case("stepup-scope-pinned", "more scope is `invalid_scope`", pinned)

        def lost():
            rig.a(accessTtl=3)
            row = rig.server()
            alice.in_(row)
            alice.expired(row)
            rig.forget()
            rig.fault(grant="refresh_token", dropAfter=True)
            first = alice.code(row)
            seen("the answer was cut", rig.events("dropped-token-response"))
            then = alice.code(row)
            state = alice.connection(row)
            if state["state"] != "reconnect_required" or then != "RECONNECT_REQUIRED":
                raise Failed(f"first {first}, then {then}, {state['state']} {state.get('reason')}")
            alice.connect(row)
            alice.is_me(row)
            return f"`{first}`, then `{then}` ({state['reason']}); connected again"
        self.case("refresh-response-lost", "the answer to a refresh is cut", lost)

        def failing(fault, what):
            rig.a(accessTtl=3)
            row = rig.server()
            alice.in_(row)
            alice.expired(row)
            rig.forget()
            rig.fault(grant="refresh_token", **fault)
            result = refusal(alice.answer(row))
            seen(what, rig.refreshes() == 1)
            alice.is_me(row)
            if not result.get("retryable") or rig.refreshes() != 2:
                raise Failed(f"{json.dumps(result)}, {rig.refreshes()} refreshes")
            return f"`{result['code']}`, retryable; the next call refreshes and passes"
        self.case("refresh-503", "a refresh is answered 503", lambda: failing({"status": 503}, "503"))
        self.case("refresh-html-200", "a refresh is answered 200 with a page",
                  lambda: failing({"status": 200, "body": "<html>login</html>"}, "a page"))

        def resource():
            rig.a(requireResource=True, accessTtl=3)
            row = rig.server()
            alice.in_(row)
            alice.expired(row)
            alice.is_me(row)
            told = [one["body"].get("resource") for one in rig.asked("/token")]
            if len(told) < 2 or set(told) != {rig.resource}:
                raise Failed(f"resource: {told}")
            return f"`resource` on authorize, exchange and refresh ({len(told)} token requests)"
        self.case("resource-required", "`resource` is required", resource)

        def rejected():
            row = rig.server()
            alice.in_(row)
            rig.forget()
            rig.r(rejectNext=1)
            alice.is_me(row)
            refusals = [one for one in rig.served() if one["status"] == 401 and one["auth"]]
            seen("401", len(refusals) == 1)
            if rig.refreshes() != 1:
                raise Failed(f"{rig.refreshes()} refreshes")
            return "one refresh, sent once more, the call passes"
        self.case("rs-rejects-first", "the server refuses a good token once", rejected)

    def page(self):
        cell = lambda words: " ".join(str(words).split()).replace("|", "\\|")
        return HEAD + "".join("| " + " | ".join(map(cell, line)) + " |\n" for line in self.lines)


def main():
    parser = argparse.ArgumentParser()
    for name in ("rig", "rig-home", "bin", "work", "out"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    house = House(options.rig, options.rig_home, options.bin, options.work)
    try:
        service = Service(house)
        service.start()
        cases = Cases(Rig(house, service))
        cases.run()
    finally:
        house.stop_all()
    pathlib.Path(options.out).write_text(cases.page())
    print(f"{len(cases.lines) - len(cases.failures)} of {len(cases.lines)}")
    for failure in cases.failures:
        print(f"✗ {failure}")
    sys.exit(1 if cases.failures else 0)


if __name__ == "__main__":
    main()
