"""All proofs, and the table of them."""

import argparse
import pathlib
import sys
import time
import traceback

import clients
import peers
from house import Failed, House, Service


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("rig", "rig-home", "schemas", "bin", "work", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", help="names of proofs, with commas")
    return parser.parse_args()


class Report:
    """What was proven, in order."""

    def __init__(self):
        self.cells, self.lines, self.failures = {}, [], []

    def cell(self, client, server, mark):
        self.cells[client, server] = mark

    def line(self, section, what, failure=None, note=""):
        self.lines.append((section, what, failure, note))
        print(f"{'✗' if failure else '✓'} {section}: {what}{': ' + failure if failure else ''}", flush=True)
        if failure:
            self.failures.append(f"{section}, {what}: {failure}")

    def prove(self, section, what, proof):
        """Runs one proof; what it returns is a note."""
        try:
            self.line(section, what, None, proof() or "")
        except Failed as failed:
            self.line(section, what, str(failed))
        except Exception as error:
            traceback.print_exc()
            self.line(section, what, f"{type(error).__name__}: {error}")


def table(report, house, service, started):
    for server in started:
        report.prove("registration", f"{server.label}: registered by REST, discovered, listed",
                     lambda server=server: register(service, server))
    for server in started:
        if server.id is None:
            continue
        for client in clients.CLIENTS:
            try:
                began = time.monotonic()
                notes, _ = peers.pair(house, service, server, client)
                report.cell(client, server.label, ("✓", notes))
                print(f"✓ {client} × {server.label} {sorted(notes)} {time.monotonic() - began:.1f} s", flush=True)
            except Failed as failed:
                report.cell(client, server.label, ("✗", set()))
                report.failures.append(f"{client} × {server.label}: {failed}")
                print(f"✗ {client} × {server.label}: {failed}", flush=True)


def register(service, server):
    peers.register(service, server)


def main():
    options = arguments()
    house = House(options.rig, options.rig_home, options.bin, options.work)
    report = Report()
    try:
        service = Service(house)
        service.start()
        started = peers.servers(house)
        table(report, house, service, started)
    finally:
        house.stop_all()
    for failure in report.failures:
        print(f"✗ {failure}", file=sys.stderr)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
