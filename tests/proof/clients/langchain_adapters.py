"""Runs a plan with langchain-mcp-adapters, as an agent would: each call in a session of its own. See
../clients.py. What LangChain makes of a result is told in the form of a result again."""

import asyncio
import json
import os
import sys
import time

from langchain_mcp_adapters.client import MultiServerMCPClient


def connection(plan):
    if plan["transport"] == "stdio":
        command, *args = plan["command"]
        env = {**os.environ, **plan.get("env", {})}
        return {"transport": "stdio", "command": command, "args": args, "env": env}
    kind = {"http": "streamable_http", "sse": "sse"}[plan["transport"]]
    return {"transport": kind, "url": plan["url"], "headers": plan["headers"] or None}


def told(message):
    """A ToolMessage as a result: without the ids that LangChain mints for each block."""
    content = [{name: value for name, value in block.items() if name != "id"} for block in message.content]
    result = {"content": content, "isError": message.status == "error"}
    if message.artifact:
        result["structuredContent"] = message.artifact["structured_content"]
    if result["isError"]:
        # The model reads our refusal as text; `_meta` is not shown.
        try:
            refusal = json.loads(content[0]["text"])
            if isinstance(refusal, dict) and "ok" in refusal:
                result["_meta"] = {"bailiwick/error": refusal}
        except (ValueError, KeyError, IndexError):
            pass
    return result


async def one(tools, call):
    began = time.perf_counter()
    tool = tools.get(call["tool"])
    if tool is None:
        return {"raised": "no such tool is listed", "took": 0}
    try:
        message = await asyncio.wait_for(tool.ainvoke(
            {"type": "tool_call", "id": "1", "name": call["tool"], "args": call["arguments"]}),
            call.get("timeout", 60))
        ended = {"result": told(message)}
    except Exception as error:
        ended = {"raised": f"{type(error).__name__}: {error}"}
    ended["took"] = (time.perf_counter() - began) * 1_000
    return ended


async def main(plan):
    client = MultiServerMCPClient({"server": connection(plan)})
    tools = await client.get_tools()
    known = {tool.name: tool for tool in tools}
    calls = [one(known, call) for call in plan["calls"]]
    ended = await asyncio.gather(*calls) if plan.get("together") else [await call for call in calls]
    listed = [{"name": tool.name, "description": tool.description, "inputSchema": tool.args_schema}
              for tool in tools]
    return {"version": "", "tools": listed if plan.get("list") else [], "ended": ended}


json.dump(asyncio.run(main(json.load(sys.stdin))), sys.stdout)
