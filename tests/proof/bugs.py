"""The public bug reports of the rig's bugs.md, one by one, each with kin that the file does not name.

A row is an entry, its class, what was done, what came, and the verdict. Servers are made for one row and
deleted after it: a tenant has room for few."""

import re
import traceback

from house import Failed, Known, free_port, get, refusal
from odd import Odd
from peers import INVOCATION, brief

HEAD = """# Public bug reports

Written by `make proof` (tests/proof/bugs.py). Each entry of the rig's `bugs.md` that concerns transports, sessions,
schemas, results, tools, policy, isolation and OAuth, driven against a running `bailiwick up`: the server that the entry names
(paths of `mocks/oddmcp.py`, a real server of the rig, its authorization server), and others of the same kind (paths of
`tests/proof/servers/kin.py` and faults that the file does not name, in italics). ✓ = it ends as the entry's "Correct" says; ✗ = it does not, and why.
"""

ELSEWHERE = [
    ("D6 on two nodes", "refresh race", "in the suite, on one database: an installation does not serve from two nodes yet"),
    ("E15, E16", "as an authorization server", "never: the service is none"),
    ("D18, D19, E36; `/f/…` of oddmcp but `/f/meta`", "downloads, PDF", "later, with downloads and extraction"),
]


class Kin(Odd):
    """The odd server with its kin; what is registered goes when its row is done."""

    def __init__(self, house, service):
        self.house, self.service, self.rows, self.port = house, service, [], free_port()
        script = house.here / "servers" / "kin.py"
        self.command = [house.python("mcp1"), script, house.rig / "mocks", self.port]
        house.peer("kin", self.command, self.port)
        self.url = f"http://127.0.0.1:{self.port}"

    def add(self, path, ready=False, **more):
        """Registered under a slug of its own, whatever comes of it."""
        slug = f"k{len(self.rows)}-" + "".join(c if c.isalnum() else "-" for c in path)[:14].lower().strip("-")
        row = self.service.register(slug, f"{self.url}/{path}", ready=ready, **more)
        self.rows.append(row["id"])
        return row

    def register(self, path, **more):
        row = self.add(path, **more)
        if row["status"] != "ready":
            raise Failed(f"{path} is {row['status']}: {row.get('statusError')}")
        return row

    def clear(self):
        for server in self.rows:
            self.service.ask("DELETE", f"/api/mcp/servers/{server}")
        # Slugs go on counting.
        self.rows = [None] * len(self.rows)

    def refusal(self, path, row=None, tool="echo"):
        """Code of a call, and how often it was sent."""
        before = len(self.sent(path))
        result = self.call(row or self.register(path), tool)
        return refusal(result).get("code"), len(self.sent(path)) - before, result

    def known(self):
        """The MCP paths of the odd server; of its files, the one that must not be fetched."""
        text = (self.house.rig / "mocks" / "oddmcp.py").read_text()
        return sorted(re.search(r'MCP = set\("([^"]+)"', text)[1].split()) + ["sse", "sse-crlf", "sse-xorigin", "f/meta"]

    def log(self):
        return get(f"{self.url}/__log")


KIN = "_kin_: "


def same(kin, paths, as_plain=False):
    """Each path gives through us what it gives directly, or, where not every client could read that, what
    /plain gives."""
    wrong = []
    for path in paths:
        try:
            row = kin.register(path)
            if not as_plain:
                kin.equal(path, row=row)
            elif without_mark(kin.call(row)) != kin.directly("plain"):
                raise Failed(brief(kin.call(row)))
        except Failed as failed:
            wrong.append(f"{path}: {failed}")
        except Exception as error:
            wrong.append(f"{path}: {type(error).__name__} {error}")
    if wrong:
        raise Failed("; ".join(wrong))
    return f"{len(paths)} of {len(paths)} results equal to the direct ones"


def codes(kin, expected, tool="echo"):
    """Each path ends in one of these codes, sent once, and the next server is not hurt."""
    wrong, found = [], {}
    for path, wanted in expected.items():
        try:
            code, sent, result = kin.refusal(path, tool=tool)
        except Failed as failed:
            code, sent, result = None, 0, str(failed)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        found.setdefault(code, []).append(path)
        if code not in wanted or sent != 1:
            wrong.append(f"{path}: {code}, sent {sent} times: {brief(result)[:300]}")
    if wrong:
        raise Failed("; ".join(wrong))
    return "; ".join(f"`{code}` {len(paths)}" for code, paths in sorted(found.items())) + "; each sent once"


def result_of(answer):
    return answer.message()["result"]


def without_mark(result):
    meta = dict(result.get("_meta") or {})
    meta.pop(INVOCATION, None)
    return {**{k: v for k, v in result.items() if k != "_meta"}, **({"_meta": meta} if meta else {})}


class Bugs:
    """`programs`: the rows of traps_people.PROGRAMS, which the operator allows."""

    def __init__(self, house, service, report, programs):
        self.house, self.service, self.report, self.programs = house, service, report, programs
        self.lines = []
        # A tenant has room for fifty servers.
        for row in service.all("/api/mcp/servers"):
            if row["slug"].startswith(("odd-", "verbatim-")):
                service.api("DELETE", f"/api/mcp/servers/{row['id']}")
        self.kin = Kin(house, service)

    def prove(self, entry, kind, did, proof):
        verdict, came = "✓", ""
        try:
            came = proof() or "as asked"
        except Known as known:
            verdict, came = "✗ known", str(known)
        except Exception as error:
            if not isinstance(error, Failed):
                traceback.print_exc()
            verdict, came = "✗", str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            self.report.failures.append(f"{entry}, {did}: {came}")
        finally:
            self.kin.clear()
        self.lines.append((entry, kind, did, came, verdict))
        print(f"{verdict} {entry} {kind}: {did}: {came}", flush=True)

    def run(self, only=None):
        """All entries, or some: names as in the first column."""
        # They use what stands here.
        import traps_oauth
        import traps_people
        import traps_tools
        import traps_wire
        for traps in (traps_wire, traps_tools, traps_people, traps_oauth):
            for entry, kind, did, proof in traps.entries(self):
                if only is None or entry in only:
                    self.prove(entry, kind, did, proof)

    def page(self):
        cell = lambda words: " ".join(str(words).split()).replace("|", "\\|")
        rows = ["| entry | class | what was done | what came | verdict |", "|---|---|---|---|:-:|"]
        number = lambda line: (line[0][0], int("".join(c for c in line[0][1:3] if c.isdigit()) or 0))
        rows += ["| " + " | ".join(map(cell, line)) + " |" for line in sorted(self.lines, key=number)]
        paths = ["", "## Paths of oddmcp.py", "", "Driven by the rows of:", ""]
        for path in self.kin.known():
            rows_of = sorted({line[0] for line in self.lines if re.search(rf"/{path}(?![\w-])", f"{line[2]} {line[3]}")})
            paths.append(f"- `/{path}`: {', '.join(rows_of) or 'nothing'}")
        left = ["", "## Not here", "", "| entry | class | when |", "|---|---|---|"]
        left += ["| " + " | ".join(map(cell, line)) + " |" for line in ELSEWHERE]
        return "\n".join([HEAD, *rows, *paths, *left]) + "\n"
