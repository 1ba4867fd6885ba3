"""Webhooks at the page's own address: the same receiver as that of `rerail watch --listen`.

The guard lets these two addresses through without a person: the signature or token of the message
stands for one, and is checked over the raw body.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from rerail.assistant.watch.receiver import PATHS, Receiver, Reply

READ_S = 10.0
"""How long a message may take to arrive."""


def routes(receiver: Receiver) -> APIRouter:
    """Return the routes of the webhooks."""
    router = APIRouter(include_in_schema=False)

    async def take(request: Request) -> Response:
        sender = request.client.host if request.client else "?"
        reply = receiver.refuse_length(request.headers.get("content-length"), sender)
        if reply is None:
            reply = await _received(receiver, request, sender)
        elif reply.code == 413:
            await _drain(request)
        headers = {"connection": "close"} if reply.code in (408, 411, 413) else None
        return Response(reply.content(), reply.code, headers, "application/json")

    for path in PATHS:
        router.add_api_route(path, take, methods=["POST"])
    return router


async def _received(receiver: Receiver, request: Request, sender: str) -> Reply:
    try:
        async with asyncio.timeout(READ_S):
            body = await request.body()
    except TimeoutError:
        return Reply(408, f"the message did not arrive within {READ_S:g} s")
    except ClientDisconnect:
        return Reply(400, "the message ended before its length")
    path, headers = request.url.path, dict(request.headers)
    return await run_in_threadpool(receiver.receive, path, headers, body, sender)


async def _drain(request: Request) -> None:
    """Read a little of what is too large: a sender that still writes would miss the answer."""
    try:
        async with asyncio.timeout(READ_S):
            async for _ in request.stream():
                pass
    except (TimeoutError, ClientDisconnect):
        return
