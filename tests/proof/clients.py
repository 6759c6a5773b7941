"""The real clients. Each runs a plan:

    {url, headers, list, together, calls: [{tool, arguments, progress, timeout}]}

and tells what happened:

    {version, tools: [definition], ended: [{result | error | raised, progress}]}
"""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from house import Failed

# Name in the table, and what runs it. The inspector is a command line: one process a request.
CLIENTS = {
    "python mcp 1.30": ("mcp1", "sdk1.py"),
    "python mcp 2.3, older era": ("mcp2", "sdk2.py", "legacy"),
    "python mcp 2.3": ("mcp2", "sdk2.py", "auto"),
    "fastmcp 4.2": ("fastmcp", "fast.py"),
    "inspector 2.12, older era": ("inspector", "legacy"),
    "inspector 2.12": ("inspector", "auto"),
}


def begin(house, client, plan):
    """The running client: to be given to `end`."""
    kind, *rest = CLIENTS[client]
    if kind == "inspector":
        raise Failed("the inspector makes one request a process: use `inspect`")
    program = [str(house.python(kind)), str(house.here / "clients" / rest[0]), *rest[1:]]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, cwd=house.work)
    process.stdin.write(json.dumps(plan).encode())
    process.stdin.close()
    process.stdin = None
    return process


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
    if CLIENTS[client][0] != "inspector":
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
    headers = [f"{name}: {value}" for name, value in plan["headers"].items()]
    command = [str(house.rig / "run.sh"), "inspector", "--cli", plan["url"], "--transport", "http",
               "--protocol-era", era, "--format", "json", *arguments]
    for header in headers:
        command += ["--header", header]
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
