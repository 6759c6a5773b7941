"""The real clients. Each runs a plan:

    {transport: http | sse | stdio, url, headers, command, env, list, together,
     calls: [{tool, arguments, progress, timeout}]}

and tells what happened:

    {version, tools: [definition], ended: [{result | error | raised, progress}]}
"""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from house import Failed

# Name in the tables, and what runs it: a python environment of the rig or `node` and a script of
# clients/; the inspector, which is a command line with one process a request; or `remote`, a stdio client
# with mcp-remote between it and the URL.
CLIENTS = {
    "python mcp 1.30": ("mcp1", "sdk1.py"),
    "python mcp 2.3, older era": ("mcp2", "sdk2.py", "legacy"),
    "python mcp 2.3": ("mcp2", "sdk2.py", "auto"),
    "fastmcp 4.2": ("fastmcp", "fast.py"),
    "TypeScript SDK 1.32": ("node", "sdk1.mjs"),
    "TypeScript SDK 2.0, older era": ("node", "sdk2.mjs", "legacy"),
    "TypeScript SDK 2.0": ("node", "sdk2.mjs", "auto"),
    "inspector 2.12, older era": ("inspector", "legacy"),
    "inspector 2.12": ("inspector", "auto"),
    "langchain adapters 0.3": ("langchain", "langchain_adapters.py"),
    "mcp-remote 0.15": ("remote", "legacy"),
    "mcp-remote 0.15, newer era": ("remote", "auto"),
}

# Those that hold every call of one session open at once.
CONCURRENT = list(CLIENTS)[:7]

# They look at the list before they call: what is not there never reaches a server.
LOOKS_FIRST = {"inspector", "langchain"}

# They show what they made of a result, without its `_meta`.
RETOLD = {"langchain"}


def kind(client):
    return CLIENTS[client][0]


def begin(house, client, plan):
    """The running client: to be given to `end`."""
    name, *rest = CLIENTS[client]
    if name == "inspector":
        raise Failed("the inspector makes one request a process: use `inspect`")
    plan = {"transport": "http", "headers": {}, **plan}
    if name == "remote":
        plan, name, rest = remote(house, plan, rest[0]), "mcp1", ["sdk1.py"]
    scripts = house.here / "clients"
    if name == "node":
        program, scripts = [house.node], house.with_modules("clients")
    else:
        program = [house.python(name)]
    process = subprocess.Popen([str(part) for part in [*program, scripts / rest[0], *rest[1:]]],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, cwd=house.work)
    process.stdin.write(json.dumps(plan).encode())
    process.stdin.close()
    process.stdin = None
    return process


def remote(house, plan, era):
    """The same plan with mcp-remote in between; a program needs none."""
    if plan["transport"] == "stdio":
        return plan
    command = [str(house.rig / "run.sh"), "mcp-remote", plan["url"], "--protocol", era, "--silent",
               "--transport", "sse-only" if plan["transport"] == "sse" else "http-only"]
    for name, value in plan["headers"].items():
        command += ["--header", f"{name}:{value}"]
    # It keeps locks and tokens below its home.
    return {**plan, "transport": "stdio", "command": command, "env": {"HOME": str(house.work)}}


def end(process, seconds=180):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed(f"the client did not end in {seconds} s") from None
    if process.returncode != 0:
        raise Failed(f"the client ended with {process.returncode}: {last_words(err)}")
    return json.loads(out)


def run(house, client, plan):
    if kind(client) != "inspector":
        return end(begin(house, client, plan))
    era = CLIENTS[client][1]
    tools = []
    if plan.get("list"):
        listed = inspect(house, plan, era, ["--method", "tools/list"])
        if "result" not in listed:
            raise Failed(f"tools/list: {json.dumps(listed)[:300]}")
        tools = listed["result"]["tools"]
    with ThreadPoolExecutor(3) as pool:
        calls = list(pool.map(lambda call: inspect(house, plan, era, call_arguments(call)), plan["calls"]))
    return {"version": era, "tools": tools, "ended": calls}


def call_arguments(call):
    return ["--method", "tools/call", "--tool-name", call["tool"],
            "--tool-args-json", json.dumps(call["arguments"])]


def begin_inspect(house, plan, era, arguments):
    transport = plan.get("transport", "http")
    target = plan["command"] if transport == "stdio" else [plan["url"]]
    command = [str(house.rig / "run.sh"), "inspector", "--cli", *target, "--transport", transport,
               "--protocol-era", era, "--format", "json", *arguments]
    for name, value in plan.get("headers", {}).items():
        command += ["--header", f"{name}: {value}"]
    for name, value in plan.get("env", {}).items():
        command += ["-e", f"{name}={value}"]
    # It keeps a catalog and tokens below its home.
    env_home = house.work / "inspector-home"
    env_home.mkdir(exist_ok=True)
    env = {**os.environ, "MCP_CATALOG_PATH": str(env_home / "mcp.json"),
           "MCP_CLIENT_CONFIG_PATH": str(env_home / "client.json")}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, cwd=house.work, env=env)


def end_inspect(process, seconds=120):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed(f"the inspector did not end in {seconds} s") from None
    try:
        return {"result": json.loads(out)["result"]}
    except (ValueError, KeyError):
        said = err.decode(errors="replace").strip()
        try:
            return {"error": json.loads(said.splitlines()[-1])}
        except (ValueError, IndexError):
            return {"raised": f"exit {process.returncode}: {last_words(err)} {out[:200]!r}"}


def inspect(house, plan, era, arguments):
    return end_inspect(begin_inspect(house, plan, era, arguments))


def last_words(err):
    """The end of what a program said, without the frames of tracebacks."""
    lines = [line.strip(" |+-") for line in err.decode(errors="replace").splitlines()]
    lines = [line for line in lines if line]
    return " / ".join(lines[-4:])[-400:]
