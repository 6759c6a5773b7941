"""Runs a plan with the client of the python SDK 2.x: sdk2.py legacy|auto. See ../clients.py."""

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def transport(plan):
    if plan["transport"] == "stdio":
        command, *args = plan["command"]
        env = {**os.environ, **plan.get("env", {})}
        with open(os.devnull, "w") as nowhere:
            program = StdioServerParameters(command=command, args=args, env=env)
            yield stdio_client(program, errlog=nowhere)
    elif plan["transport"] == "sse":
        yield sse_client(plan["url"], headers=plan["headers"])
    else:
        http = httpx2.AsyncClient(headers=plan["headers"], timeout=httpx2.Timeout(30, read=300))
        async with http:
            yield streamable_http_client(plan["url"], http_client=http)


async def one(client, call):
    progress, began = [], time.perf_counter()

    async def on_progress(done, total, message):
        progress.append([done, total])

    try:
        result = await client.call_tool(
            call["tool"],
            call["arguments"],
            read_timeout_seconds=call.get("timeout", 60),
            progress_callback=on_progress if call.get("progress") else None,
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


async def main(plan, mode):
    async with transport(plan) as streams:
        async with Client(streams, mode=mode) as client:
            tools, cursor = [], None
            while plan.get("list"):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            calls = [one(client, call) for call in plan["calls"]]
            if plan.get("together"):
                ended = await asyncio.gather(*calls)
            else:
                ended = [await call for call in calls]
            version = client.protocol_version
    return {
        "version": version,
        "tools": [t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in tools],
        "ended": ended,
    }


json.dump(asyncio.run(main(json.load(sys.stdin), sys.argv[1])), sys.stdout)
