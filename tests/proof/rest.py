"""The REST API against its own OpenAPI document, asked by schemathesis."""

import argparse
import pathlib
import subprocess
import sys

from house import Failed, House, Service, free_port

HEAD = """# The REST API and its document

Written by `make proof` (tests/proof/schemathesis.sh). schemathesis {version} makes requests from the OpenAPI document
of `bailiwick up`, fitting and not fitting, and sequences of them, with the token of a superadmin and with that of a
member; once with ids that it makes up, once with those of things that exist. Every check is on: no 5xx; no status,
media type, header or body that the document does not have for the route; what does not fit is refused; a method that
a route does not have is 405; without a token nothing is answered. 422 is allowed for a request that fits its schema: a
cursor, an idempotency key or a set of scopes may be wrong in ways that a schema cannot say. DELETE of a session or
project archives it: that it can be read afterwards is meant so.

Seed {seed}, {examples} examples a route and phase.

| token | ids | routes | requests | findings |
|---|---|--:|--:|---|
"""

# On the command line `--checks all` would switch on again what is off here.
CONFIG = """
[checks]
enabled = true

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429"]

# DELETE archives these: they stay readable.
[[operations]]
include-path = ["/api/projects/{{project}}", "/api/sessions/{{session}}"]
checks.use_after_free.enabled = false

{parameters}
"""


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("rig", "rig-home", "bin", "work", "out", "examples", "seed"):
        parser.add_argument(f"--{name}", required=True)
    return parser.parse_args()


class Rest:
    def __init__(self, options):
        self.options = options
        self.work = pathlib.Path(options.work)
        self.house = House(options.rig, options.rig_home, options.bin, options.work)
        self.service = Service(self.house)
        self.lines, self.failures = [], []

    def run(self):
        self.service.start()
        self.demo = self.start_demo()
        for who, token in (("superadmin", self.service.admin), ("member", self.member())):
            for ids in ("made up", "real"):
                self.ask(who, token, ids)

    def start_demo(self):
        port = free_port()
        command = [self.house.bin / "bailiwick-demo", "--listen", f"127.0.0.1:{port}"]
        self.house.peer("demo", command, port)
        return f"http://127.0.0.1:{port}/mcp"

    def member(self):
        """A token of a member, with all scopes that a member's may have."""
        command = [self.house.bin / "bailiwick", "--data-dir", self.service.dir]
        run = lambda *more, text=None: subprocess.run(
            [*command, *more], input=text, text=True, check=True, capture_output=True)
        # The operator's commands, as the documentation has them.
        run("user", "create", "member@example.org", "--role", "member", "--password-stdin", text="a long password\n")
        made = run("token", "create", "--user", "member@example.org",
                   "--scopes", "api:read,api:write,approve,admin")
        return made.stdout.strip().splitlines()[-1]

    def real(self, who, token):
        """Ids of things that exist: the person's own, and a server that is there for all."""
        service, name = self.service, f"real-{who}"
        form = {"name": name, "slug": name, "transport": "http", "url": self.demo, "authMode": "none",
                "enabled": True}
        service.api("POST", "/api/mcp/servers", form)
        service.api("POST", f"/api/mcp/servers/{name}/tools/refresh")
        tools = service.api("GET", f"/api/mcp/servers/{name}/tools")["items"]
        own = Person(service, token)
        return {
            "path.server": name,
            "path.tool": tools[0]["id"],
            "path.session": own.api("POST", "/api/sessions", {"title": "real"})["id"],
            "path.project": own.api("POST", "/api/projects", {"title": "real"})["id"],
            "path.token": own.api("POST", "/api/tokens", {"name": "real", "scopes": ["api:read"]})["id"],
            "path.user": own.api("GET", "/api/me")["user"]["id"],
        }

    def ask(self, who, token, ids):
        parameters = self.real(who, token) if ids == "real" else {}
        shown = "".join(f'"{name}" = "{value}"\n' for name, value in parameters.items())
        where = self.work / f"{who}-{ids.replace(' ', '-')}"
        where.mkdir()
        config = CONFIG.format(parameters=f"[parameters]\n{shown}" if shown else "")
        (where / "schemathesis.toml").write_text(config)
        command = [
            self.house.rig / "run.sh", "schemathesis", "--no-color", "--config-file", where / "schemathesis.toml",
            "run", f"{self.service.url}/api/openapi.json",
            "--header", f"Authorization: Bearer {token}", "--continue-on-failure",
            "--max-examples", self.options.examples, "--seed", self.options.seed,
            "--report", "ndjson", "--report-ndjson-path", where / "events.ndjson",
        ]
        # What exists must go on to exist.
        command += ["--exclude-method", "DELETE"] if parameters else []
        with open(where / "log", "wb") as log:
            done = subprocess.run([str(part) for part in command], cwd=where, stdout=log,
                                  stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        log = (where / "log").read_text(errors="replace")
        self.line(who, ids, log, done.returncode)

    def line(self, who, ids, log, status):
        routes, requests = after(log, "Tested:"), after(log, "Test cases:\n")
        found = "none" if status == 0 else "see below"
        line = f"| {who} | {ids} | {routes} | {requests} | {found} |"
        print(line, flush=True)
        self.lines.append(line)
        if status != 0:
            print(log, flush=True)
            self.failures.append(f"{who}, {ids}: schemathesis says {status}")

    def write(self):
        version = subprocess.run([self.house.rig / "run.sh", "schemathesis", "--version"],
                                 text=True, capture_output=True, check=True).stdout.split()[-1]
        head = HEAD.format(version=version, seed=self.options.seed, examples=self.options.examples)
        page = head + "\n".join(self.lines) + "\n"
        pathlib.Path(self.options.out).write_text(page)


class Person(Service):
    """Somebody else at the same service."""

    def __init__(self, service, token):
        self.url, self.admin = service.url, token


def after(log, words):
    """The number that follows the words."""
    rest = log.partition(words)[2].split()
    return rest[0] if rest and rest[0].isdigit() else "?"


def main():
    options = arguments()
    rest = Rest(options)
    try:
        rest.run()
    except Failed as failed:
        rest.failures.append(str(failed))
    finally:
        rest.house.stop_all()
    if not rest.failures:
        rest.write()
    for failure in rest.failures:
        print(f"✗ {failure}")
    sys.exit(1 if rest.failures else 0)


if __name__ == "__main__":
    main()
