"""An MCP server on the python SDK 2.x, which speaks 2026-07-28 and older: sdk2.py PORT [json]."""

import asyncio
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from pydantic import BaseModel

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)

server = MCPServer("proof")


class Weather(BaseModel):
    city: str
    celsius: float
    tags: list[str]


@server.tool()
def echo(message: str) -> str:
    return message


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def weather(city: str) -> Weather:
    return Weather(city=city, celsius=-3.5, tags=["snow", "лёд", "氷"])


@server.tool()
def picture() -> Image:
    return Image(data=PIXEL, format="png")


@server.tool()
def plain() -> list[str]:
    return ["one", "two"]


@server.tool(structured_output=False)
def unstructured(x: int | None = None) -> str:
    return f"x is {x}"


@server.tool()
def fail(words: str) -> str:
    raise ValueError(words)


@server.tool()
def big(size: int) -> str:
    return "x" * size


@server.tool()
async def count(to: int, context: Context) -> str:
    for number in range(1, to + 1):
        await context.report_progress(number, to)
        await asyncio.sleep(0.15)
    return f"counted to {to}"


server.run(
    transport="streamable-http",
    host="127.0.0.1",
    port=int(sys.argv[1]),
    json_response=sys.argv[2:] == ["json"],
)
