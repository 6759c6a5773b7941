"""All proofs: exit status 0 if each holds."""

import argparse
import pathlib
import sys

import bugs
import clients
import guide
import lifecycle
import odd
import parallel
import peers
import questions
import table
import traps_people
import verbatim
from house import Failed, House, Service
from raw import VERSIONS, Raw
from report import Report
from schemas import Schemas


PARTS = ["table", "guide", "questions", "parallel", "bytes", "manners", "bugs", "life"]


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("rig", "rig-home", "schemas", "bin", "work", "out", "compatibility", "guide", "bugs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--entries", help="the bugs of these entries alone (D10,E24)")
    parser.add_argument("--servers", help="the table with these rows alone (slugs of table.py)")
    parser.add_argument("--clients", help="the table with these columns alone (parts of their names)")
    return parser.parse_args()


class Proof:
    def __init__(self, options):
        self.house = House(options.rig, options.rig_home, options.bin, options.work)
        self.service, self.report = Service(self.house), Report()
        self.schemas = Schemas(options.schemas)
        self.guide_page, self.servers = options.guide, []
        self.entries = options.entries.split(",") if options.entries else None
        self.noisy, self.traps = [], None
        self.rows = set(options.servers.split(",")) if options.servers else None
        self.columns = options.clients.split(",") if options.clients else [""]

    def server(self, slug):
        return next(server for server in self.servers if server.slug == slug)

    def register(self):
        self.servers = peers.servers(self.house)
        programs = [server for server in self.servers if server.transport == "stdio"]
        self.noisy = [peers.Server(self.house, **row) for row in traps_people.PROGRAMS]
        if self.service.knows("--stdio"):
            self.service.allow(programs + self.noisy)
        self.service.start()
        for server in self.servers:
            self.report.register(server, lambda server=server: peers.register(self.service, server))

    def table(self):
        for server in self.servers:
            if server.id is None or self.rows and server.slug not in self.rows:
                continue
            for client in clients.CLIENTS:
                if any(part in client for part in self.columns):
                    self.pair(client, server)

    def pair(self, client, server):
        if (client, server.slug) in table.APART:
            self.report.apart(client, server.label, table.APART[client, server.slug])
            return
        try:
            notes = peers.pair(self.house, self.service, server, client)
            self.report.cell(client, server.label, notes)
        except Failed as failed:
            self.report.cell(client, server.label, set(), str(failed))

    def guide(self):
        demo = self.server("demo")
        for number, (heading, kind, text) in enumerate(guide.blocks(self.guide_page)):
            self.report.prove(
                "The guide for clients", f"{heading}: block {number + 1} ({kind}) runs, is asked about and ends",
                lambda number=number, kind=kind, text=text: guide.ran(
                    self.house, self.service, demo, number, kind, text))

    def questions(self):
        server = self.server("py1")
        for client in clients.CLIENTS:
            for decision in ("allow_once", "deny", "allow_matching"):
                self.report.prove(
                    "Questions", f"{client}: {decision}, while it waits",
                    lambda client=client, decision=decision: questions.asked(
                        self.house, self.service, server, client, decision))

    def parallel(self):
        base = self.server("py1").url.removesuffix("/mcp")
        raised = {"maxConcurrent": 100, "maxQueueDepth": 100}
        wide = self.service.register("meeting", f"{base}/mcp", governance=raised)["id"]
        narrow = self.service.register("holding", f"{base}/mcp")["id"]
        for client in clients.CONCURRENT:
            for parties in (6, 100):
                self.report.prove(
                    "Side by side", f"{parties} calls of {client}, inside the server together",
                    lambda client=client, parties=parties: parallel.together(
                        self.house, self.service, wide, client, base, parties))
        self.report.prove(
            "Side by side", "20 calls, default limits, the first held until 11 refusals were seen",
            lambda: parallel.queue(self.service, narrow, base, "holding"))

    def bytes(self):
        record, prove = [], self.report.prove
        url, servers = verbatim.start(self.house, self.service)
        prove("Bytes", "results of a peer of no SDK: unknown content type, unknown members, integers "
              "of 30 digits, escapes, white space",
              lambda: verbatim.results(self.service, url, servers, record))
        prove("Bytes", "arguments, from the client's request to the server's",
              lambda: verbatim.arguments(self.service, url, servers))
        section = "Published schemas"
        for slug in ("everything", "py1", "py2", "demo"):
            prove(section, f"a session with {self.server(slug).label}, in each version",
                  lambda slug=slug: self.recorded(slug, record))
        prove(section, "what clients were answered", lambda: self.schemas.answers(record))
        prove(section, "what servers were sent, and its headers",
              lambda: self.schemas.sent(verbatim.journal(url)))

    def recorded(self, slug, record):
        server = self.server(slug)
        session = self.service.session([server.id])
        for version in VERSIONS:
            client = Raw(self.service.gateway(session), version, self.service.headers(), record)
            client.begin()
            client.ask("tools/list")
            for _, tool, arguments in server.cases:
                client.call(server.names[tool], arguments)
            client.call(server.names[server.invalid[0]], server.invalid[1])
            client.call("mcp__x__unknown", {})

    def manners(self):
        server = odd.Odd(self.house, self.service)
        for path, what, proof in odd.proofs(server):
            self.report.prove("Odd manners", f"{what} (`/{path}`)", proof)

    def bugs(self):
        self.traps = bugs.Bugs(self.house, self.service, self.report, self.noisy)
        self.traps.run(self.entries)

    def life(self):
        house, service, demo = self.house, self.service, self.server("demo")

        def prove(what, proof):
            self.report.prove("Sessions and time", what, proof)

        prove("GET, DELETE, forged and missing session ids, no token",
              lambda: lifecycle.sessions(service, demo))
        prove("batches in 2025-03-26 alone", lambda: lifecycle.batch(service, demo))
        prove("a cancelled call ends within 3 s, in each version",
              lambda: lifecycle.cancelled(service, demo))
        prove("no pause of a delayed acknowledgement (40 ms) in any client",
              lambda: lifecycle.pauses(house, service, demo))
        for server in (self.server("py1"), self.server("py2")):
            prove(f"{server.label}: a restart of the server loses no call after it",
                  lambda server=server: lifecycle.server_restart(house, service, server))
        prove("a restart of the service: older sessions go on",
              lambda: lifecycle.service_restart(house, service, demo))


def main():
    options = arguments()
    proof = Proof(options)
    parts = options.only.split(",") if options.only else PARTS
    try:
        proof.register()
        for part in parts:
            getattr(proof, part)()
    finally:
        proof.house.stop_all()
    pages = []
    if proof.traps and not options.entries:
        pages.append((options.bugs, proof.traps.page()))
    if set(PARTS) - {"table", "bugs"} <= set(parts):
        pages.append((options.out, proof.report.page()))
    if "table" in parts and not options.servers and not options.clients:
        pages.append((options.compatibility, proof.report.compatibility()))
    for path, text in pages:
        out = pathlib.Path(path)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
        print(f"written: {out}")
    print(f"{len(proof.report.failures)} failures")
    for failure in proof.report.failures:
        print(f"✗ {failure}", file=sys.stderr)
    return 1 if proof.report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
