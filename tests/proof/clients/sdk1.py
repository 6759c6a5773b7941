"""Runs a plan with the client of the python SDK 1.x. The plan comes on stdin, what happened goes to
stdout, both JSON; see ../clients.py."""

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
from mcp import ClientSession, McpError, StdioServerParameters
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
            async with stdio_client(program, errlog=nowhere) as (read, write):
                yield read, write
    elif plan["transport"] == "sse":
        async with sse_client(plan["url"], headers=plan["headers"]) as (read, write):
            yield read, write
    else:
        http = httpx.AsyncClient(headers=plan["headers"], timeout=httpx.Timeout(30, read=300))
        async with http, streamable_http_client(plan["url"], http_client=http) as (read, write, _):
            yield read, write


async def one(session, call):
    progress, began = [], time.perf_counter()

    async def on_progress(done, total, message):
        progress.append([done, total])

    try:
        result = await session.call_tool(
            call["tool"],
            call["arguments"],
            read_timeout_seconds=timedelta(seconds=call.get("timeout", 60)),
            progress_callback=on_progress if call.get("progress") else None,
        )
        ended = {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}
    except McpError as error:
        ended = {"error": error.error.model_dump(mode="json", exclude_none=True)}
    except Exception as error:
        ended = {"raised": f"{type(error).__name__}: {error}"}
    ended["took"] = (time.perf_counter() - began) * 1_000
    if call.get("progress"):
        ended["progress"] = progress
    return ended


async def main(plan):
    async with transport(plan) as (read, write):
        async with ClientSession(read, write) as session:
            started = await session.initialize()
            tools, cursor = [], None
            while plan.get("list"):
                page = await session.list_tools(cursor)
                tools += page.tools
                cursor = page.nextCursor
                if not cursor:
                    break
            calls = [one(session, call) for call in plan["calls"]]
            if plan.get("together"):
                ended = await asyncio.gather(*calls)
            else:
                ended = [await call for call in calls]
    return {
        "version": started.protocolVersion,
        "tools": [t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in tools],
        "ended": ended,
    }


json.dump(asyncio.run(main(json.load(sys.stdin))), sys.stdout)
