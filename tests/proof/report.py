"""What was proven: on the terminal as it comes, and as two pages."""

import traceback

import clients
from house import Failed, Known
from peers import NOTES

HEAD = """# Real peers

Written by `make proof` (tests/proof), which starts `bailiwick up`, registers real MCP servers by REST, and calls
them with real MCP clients, directly and through the gateway. Which clients and servers go together is in
[compatibility](../compatibility.md).
"""

TABLE = """# Compatibility

Written by `make proof` (tests/proof; its rows are table.py, its columns clients.py), which starts `bailiwick up`,
registers real MCP servers by REST, and calls them with real MCP clients, directly and through the gateway. ✓ = the
list of tools is the same but for the names, every result is JSON-equal to the direct one but for
`_meta["bailiwick/invocationId"]`, an unknown tool is `-32602`, invalid input is refused as `INVALID_INPUT`, and every
call left its row. Letters: what differs, and why. ✗ with a number: it does not hold, and why. – with a number: not tried.
"""


class Report:
    def __init__(self):
        self.cells, self.lines, self.failures, self.letters = {}, [], [], {}
        # Reasons of ✗ and –, in the order of their numbers.
        self.reasons = []
        # Rows of servers that could not be registered.
        self.absent = {}

    def reason(self, words):
        if words not in self.reasons:
            self.reasons.append(words)
        return self.reasons.index(words) + 1

    def register(self, server, proof):
        what = f"{server.label}: registered, discovered, listed"
        try:
            self.line("Registration", what, None, f"{proof()} tools")
        except Failed as failed:
            server.id = None
            self.absent[server.label] = f"not registered: {failed}"
            self.line("Registration", what, str(failed))
        # An empty row, until its cells come.
        self.cells.setdefault(server.label, {})

    def cell(self, client, server, notes, failure=None):
        number = f"✗ {self.reason(failure)}" if failure else ""
        self.cells[server][client] = number or "✓" + self.marks(notes)
        say = f": {failure}" if failure else f" ({', '.join(sorted(notes))})" if notes else ""
        print(f"{'✗' if failure else '✓'} {client} × {server}{say}", flush=True)
        if failure:
            self.failures.append(f"{client} × {server}: {failure}")

    def apart(self, client, server, words):
        self.cells[server][client] = f"– {self.reason(words)}"
        print(f"– {client} × {server}: {words}", flush=True)

    def marks(self, notes):
        # The letters follow the order of the list, whatever comes first.
        letters = {name: chr(ord("a") + at) for at, name in enumerate(NOTES)}
        self.letters.update({name: letters[name] for name in notes})
        return " " + " ".join(sorted(letters[name] for name in notes)) if notes else ""

    def line(self, section, what, failure=None, note=""):
        self.lines.append((section, what, failure, note))
        say = failure or note
        print(f"{'✗' if failure else '✓'} {section}: {what}{': ' + say if say else ''}", flush=True)
        if failure:
            self.failures.append(f"{section}, {what}: {failure}")

    def prove(self, section, what, proof):
        """Runs one proof; what it returns is a note."""
        try:
            self.line(section, what, None, proof() or "")
        except Failed as failed:
            self.line(section, what, str(failed))
        except Known as known:
            self.lines.append((section, what, f"known: {known}", ""))
            print(f"✗ {section}: {what}: known: {known}", flush=True)
        except Exception as error:
            traceback.print_exc()
            self.line(section, what, f"{type(error).__name__}: {error}")

    def page(self):
        page = [HEAD]
        section = None
        for name, what, failure, note in self.lines:
            if name != section:
                page += ["", f"## {name}", ""]
                section = name
            page.append(f"- {'✗' if failure else '✓'} {what}{': ' + (failure or note) if failure or note else ''}")
        if self.failures:
            page += ["", "## What fails", ""] + [f"- {failure}" for failure in self.failures]
        return "\n".join(page) + "\n"

    def compatibility(self):
        names = list(clients.CLIENTS)
        rows = ["| server | " + " | ".join(names) + " |", "|---|" + ":-:|" * len(names)]
        for server, cells in self.cells.items():
            absent = self.absent.get(server)
            empty = f"✗ {self.reason(absent)}" if absent else ""
            rows.append(f"| {server} | " + " | ".join(cells.get(name, empty) for name in names) + " |")
        letters = sorted(self.letters.items(), key=lambda pair: pair[1])
        notes = [f"- **{letter}** {NOTES[name]}" for name, letter in letters]
        numbers = [f"- **{at}** {one_line(words)}" for at, words in enumerate(self.reasons, 1)]
        return "\n".join([TABLE, *rows, "", *notes, *numbers]) + "\n"


def one_line(words):
    return " ".join(words.split()).replace("|", "\\|")
