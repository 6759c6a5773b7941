"""An MCP server on the python SDK 1.x: sdk1.py PORT stateful|stateless. `stateless` answers JSON only.

GET /journal tells which calls were executed; POST /release lets held calls go.
"""

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP, Image
from pydantic import BaseModel
from starlette.responses import JSONResponse

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)

port, kind = int(sys.argv[1]), sys.argv[2]
server = FastMCP(
    "proof",
    host="127.0.0.1",
    port=port,
    stateless_http=kind == "stateless",
    json_response=kind == "stateless",
    log_level="WARNING",
)


class Weather(BaseModel):
    city: str
    celsius: float
    tags: list[str]


class Floor:
    """Who is in the room, and who was."""

    inside = 0
    most = 0
    executed: list[int] = []
    together = asyncio.Event()
    released = asyncio.Event()


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
        await context.info(f"number {number}")
        await asyncio.sleep(0.15)
    return f"counted to {to}"


@server.tool()
async def meet(number: int, parties: int) -> dict[str, int]:
    """Answers when so many calls are inside together."""
    Floor.executed.append(number)
    Floor.inside += 1
    Floor.most = max(Floor.most, Floor.inside)
    if Floor.inside >= parties:
        Floor.together.set()
    try:
        await asyncio.wait_for(Floor.together.wait(), 30)
    finally:
        Floor.inside -= 1
    return {"number": number, "most": Floor.most}


@server.tool()
async def hold(number: int) -> int:
    """The first call waits until /release; later ones find it released."""
    Floor.executed.append(number)
    await asyncio.wait_for(Floor.released.wait(), 30)
    return number


@server.custom_route("/journal", methods=["GET"])
async def journal(request):
    return JSONResponse({"executed": Floor.executed, "most": Floor.most})


@server.custom_route("/release", methods=["POST"])
async def release(request):
    Floor.released.set()
    return JSONResponse({})


@server.custom_route("/reset", methods=["POST"])
async def reset(request):
    Floor.executed, Floor.most = [], 0
    Floor.together, Floor.released = asyncio.Event(), asyncio.Event()
    return JSONResponse({})


server.run(transport="streamable-http")
