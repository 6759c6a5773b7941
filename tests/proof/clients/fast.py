"""Runs a plan with the client of fastmcp. See ../clients.py."""

import asyncio
import json
import os
import sys
import time

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from mcp import MCPError


def transport(plan):
    if plan["transport"] == "stdio":
        command, *args = plan["command"]
        env = {**os.environ, **plan.get("env", {})}
        return StdioTransport(command, args, env=env, keep_alive=False)
    kind = SSETransport if plan["transport"] == "sse" else StreamableHttpTransport
    return kind(plan["url"], headers=plan["headers"])


async def one(client, call):
    progress, began = [], time.perf_counter()

    async def on_progress(done, total, message):
        progress.append([done, total])

    try:
        result = await client.call_tool_mcp(
            call["tool"],
            call["arguments"],
            timeout=call.get("timeout", 60),
            progress_handler=on_progress if call.get("progress") else None,
        )
        ended = {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}
    except MCPError as error:
        ended = {"error": error.error.model_dump(mode="json", exclude_none=True)}
    except Exception as error:
        ended = {"raised": f"{type(error).__name__}: {error}"}
    ended["took"] = (time.perf_counter() - began) * 1_000
    if call.get("progress"):
        ended["progress"] = progress
    return ended


async def main(plan):
    async with Client(transport(plan), timeout=120) as client:
        tools = await client.list_tools() if plan.get("list") else []
        calls = [one(client, call) for call in plan["calls"]]
        if plan.get("together"):
            ended = await asyncio.gather(*calls)
        else:
            ended = [await call for call in calls]
        version = getattr(client, "protocol_version", None) or client.session.protocol_version
    return {
        "version": version,
        "tools": [t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in tools],
        "ended": ended,
    }


json.dump(asyncio.run(main(json.load(sys.stdin))), sys.stdout)
