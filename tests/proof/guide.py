"""The blocks of docs/guides/clients.md that say that they are run, run."""

import json
import os
import pathlib
import re
import subprocess

from house import Failed, wait

EXAMPLE = "https://bailiwick.example.org"
MARKED = re.compile(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", re.S)

# Runs a program of a stdio configuration as clients do: lists its tools, calls one.
STDIO = """
import asyncio, json, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

server = next(iter(json.load(open(sys.argv[1]))["mcpServers"].values()))
env = {**os.environ, **server["env"]}

async def main():
    parameters = StdioServerParameters(command=server["command"], args=server["args"], env=env)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        print([tool.name for tool in (await session.list_tools()).tools])
        print(await session.call_tool("mcp__demo__greet", {"name": "Ada"}))

asyncio.run(main())
"""


def blocks(guide):
    """Language and text of each, with the heading above it."""
    text = pathlib.Path(guide).read_text()
    for block in MARKED.finditer(text):
        heading = re.findall(r"^## (.*)$", text[: block.start()], re.M)[-1]
        yield heading, block.group(1), block.group(2)


def shim(house):
    """An `npx` that runs the rig's own: nothing is fetched."""
    folder = house.work / "npx"
    folder.mkdir(exist_ok=True)
    program = folder / "npx"
    program.write_text(f"""#!/bin/bash
[ "$1" = -y ] && shift
case $1 in
@modelcontextprotocol/inspector) shift; exec "{house.rig}/run.sh" inspector "$@" ;;
mcp-remote) shift; exec "{house.rig}/run.sh" mcp-remote "$@" ;;
*) echo "no such package here: $1" >&2; exit 1 ;;
esac
""")
    program.chmod(0o755)
    return folder


def command(house, kind, text, folder):
    """What runs the block, which stands in a file of `folder`."""
    if kind == "sh":
        (folder / "block.sh").write_text("set -eu\n" + text)
        return ["bash", "block.sh"]
    if kind == "node":
        modules = folder / "node_modules"
        if not modules.exists():
            modules.symlink_to(house.rig_home / "npm" / "servers" / "node_modules")
        (folder / "block.mjs").write_text(text)
        return [str(house.rig / "run.sh"), "node", str(folder / "block.mjs")]
    if kind == "stdio":
        (folder / "block.json").write_text(text)
        (folder / "block.py").write_text(STDIO)
        return [str(house.python("mcp1")), "block.py", "block.json"]
    (folder / "block.py").write_text(text)
    return [str(house.python(kind)), "block.py"]


def ran(house, service, demo, number, kind, text):
    """The block lists the demo's tools, waits for a permission, and shows what the tool said."""
    session = service.session([demo.id], "ask_for_dangerous")
    url, token = service.gateway(session), service.headers()["Authorization"].removeprefix("Bearer ")
    if f"{EXAMPLE}/mcp" not in text:
        raise Failed("it names no example URL")
    folder = house.work / f"guide-{number}"
    folder.mkdir()
    text = text.replace(f"{EXAMPLE}/mcp", url).replace("blw_…", token)
    environment = {**os.environ, "BAILIWICK_TOKEN": token, "PATH": f"{shim(house)}:{os.environ['PATH']}",
                   "MCP_CATALOG_PATH": str(folder / "mcp.json"), "HOME": str(folder)}
    process = subprocess.Popen(command(house, kind, text, folder), cwd=folder, env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        path = f"/api/permission-requests?sessionId={session}&state=pending"
        question = wait("the question", lambda: asked(process, service, path), 60)
        service.api("POST", f"/api/permission-requests/{question['id']}/decision",
                    {"decision": "allow_once"})
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        raise Failed("it did not end in 60 s") from None
    finally:
        process.kill()
    said = out.decode(errors="replace")
    if process.returncode != 0:
        raise Failed(f"it ended with {process.returncode}: {err.decode(errors='replace')[-400:]}")
    for word in ("mcp__demo__slow_count", "Ada"):
        if word not in said:
            raise Failed(f"it does not say {word}: {said[-400:]}")
    return json.dumps(question["words"])


def asked(process, service, path):
    if process.poll() is not None:
        out, err = process.communicate()
        raise Failed(f"it ended before it was asked: {(out + err).decode(errors='replace')[-600:]}")
    return next(iter(service.api("GET", path)["items"]), None)
