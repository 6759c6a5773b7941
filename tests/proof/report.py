"""What was proven: on the terminal as it comes, and as a page."""

import traceback

import clients
from house import Failed, Known
from peers import NOTES

HEAD = """# Real peers

Written by `make proof` (tests/proof), which starts `bailiwick up`, registers real MCP servers by REST, and calls
them with real MCP clients, directly and through the gateway. ✓ = the list of tools is the same but for the
names, every result is JSON-equal to the direct one but for `_meta["bailiwick/invocationId"]`, an unknown tool is
`-32602`, invalid input is refused as `INVALID_INPUT`, and every call left its row. Letters: what differs, and why.
"""


class Report:
    def __init__(self):
        self.cells, self.lines, self.failures, self.letters = {}, [], [], {}

    def cell(self, client, server, notes, failure=None):
        self.cells[client, server] = "✗" if failure else "✓" + self.marks(notes)
        mark = "✗" if failure else "✓"
        say = f": {failure}" if failure else f" ({', '.join(sorted(notes))})" if notes else ""
        print(f"{mark} {client} × {server}{say}", flush=True)
        if failure:
            self.failures.append(f"{client} × {server}: {failure}")

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
        if self.cells:
            page += self.table()
        section = None
        for name, what, failure, note in self.lines:
            if name != section:
                page += ["", f"## {name}", ""]
                section = name
            page.append(f"- {'✗' if failure else '✓'} {what}{': ' + (failure or note) if failure or note else ''}")
        if self.failures:
            page += ["", "## What fails", ""] + [f"- {failure}" for failure in self.failures]
        return "\n".join(page) + "\n"

    def table(self):
        servers = list(dict.fromkeys(server for _, server in self.cells))
        names = list(clients.CLIENTS)
        rows = ["| server | " + " | ".join(names) + " |", "|---|" + ":-:|" * len(names)]
        for server in servers:
            cells = [self.cells.get((client, server), "") for client in names]
            rows.append(f"| {server} | " + " | ".join(cells) + " |")
        notes = [f"- **{letter}** {NOTES[name]}" for name, letter in
                 sorted(self.letters.items(), key=lambda pair: pair[1])]
        return rows + [""] + notes
