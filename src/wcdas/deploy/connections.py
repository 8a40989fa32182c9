"""Connections that do not hold a server up, neither those that are slow nor those that are many.

uvicorn limits how long a connection is idle between two requests, not how long headers take to
arrive. All that is used of its protocol are the methods every protocol of asyncio has; that headers
have arrived is seen from the application being called.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wcdas.deploy.limits import RETRY, Limits

try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:  # it has moved: all is served, but headers may take any time
    H11Protocol = None  # type: ignore[assignment, misc]


class Connections:
    """An application whose connections are limited in number and in time.

    Where there are too many, the one whose request is awaited the longest has to go.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.open: dict[Any, asyncio.Transport] = {}
        # Whose request has not arrived in full, the longest first; the timer is of the headers.
        self.awaited: dict[Any, asyncio.TimerHandle] = {}
        self.deadlines: set[asyncio.Timeout] = set()

    def opened(self, transport: asyncio.Transport) -> None:
        client = transport.get_extra_info("peername")
        self.open[client] = transport
        self._await_request(client)
        if len(self.open) > self.limits.connections:
            self._close(next(iter(self.awaited)), 503, "too many connections; try again later")

    def lost(self, transport: asyncio.Transport) -> None:
        client = transport.get_extra_info("peername")
        if self.open.get(client) is transport:
            del self.open[client]
            self._arrived(client)

    def end(self) -> None:
        """End every request and connection at once."""
        for deadline in self.deadlines:
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())
        for transport in self.open.values():
            transport.abort()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope["client"]
        transport = self.open.get(client)
        if timer := self.awaited.get(client):
            timer.cancel()
        exchange = Exchange(scope, receive, send, self.limits.linger, lambda: self._arrived(client))
        deadline = asyncio.timeout(self.limits.request)
        self.deadlines.add(deadline)
        try:
            async with deadline:
                await self.app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            if transport is None or not deadline.expired():
                raise
            transport.abort()
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self.deadlines.remove(deadline)
        if transport is not None and self.open.get(client) is transport:
            self._await_request(client)

    def _await_request(self, client: Any) -> None:
        self.awaited[client] = asyncio.get_running_loop().call_later(
            self.limits.headers, self._close, client, 408, "the headers took too long"
        )

    def _arrived(self, client: Any) -> None:
        if timer := self.awaited.pop(client, None):
            timer.cancel()

    def _close(self, client: Any, status: int, why: str) -> None:
        self._arrived(client)
        refuse(self.open.pop(client), status, why)


class Exchange:
    """A request and its answer, which may come before the body.

    A connection closed on a sender takes the answer with it. So the rest of the body is read, for
    a while, before it is closed.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        linger: float,
        arrived: Callable[[], object],
    ) -> None:
        self._receive, self._send, self.linger, self.arrived = receive, send, linger, arrived
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        self._is_unread(length != b"0" or b"transfer-encoding" in headers)

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_unread(message.get("more_body", False))
        return message

    def _is_unread(self, unread: bool) -> None:
        self.unread = unread
        if not unread:
            self.arrived()

    async def send(self, message: Message) -> None:
        if self.unread and message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        elif self.unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(self.linger):
                    while self.unread:
                        await self.receive()
            message = {"type": "http.response.body"}
        await self._send(message)


class Server(uvicorn.Server):
    """A server that ends soon after it is told to, whatever its clients do."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.connections = Connections(app, limits)
        super().__init__(
            uvicorn.Config(
                self.connections,
                http=_protocol(self.connections),
                ws="none",
                lifespan="off",
                log_level="error",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=int(limits.stop) + 1,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        connections = self.connections
        asyncio.get_running_loop().call_later(connections.limits.stop, connections.end)
        await super().shutdown(sockets)


def refuse(transport: asyncio.Transport, status: int, why: str) -> None:
    """Answer outside of any request, and close."""
    body = json.dumps({"error": why}).encode()
    lines = {"Content-Type": "application/json", "Content-Length": len(body), "Connection": "close"}
    lines |= RETRY if status == 503 else {}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    start = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    transport.write(f"{start}{head}\r\n".encode() + body)
    if transport.get_write_buffer_size():  # who does not read is not waited for
        transport.abort()
    else:
        transport.close()


def _protocol(connections: Connections) -> type[asyncio.Protocol] | str:
    if H11Protocol is None:
        return "auto"

    class Limited(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.its_transport = transport
            connections.opened(transport)

        def connection_lost(self, error: Exception | None) -> None:
            connections.lost(self.its_transport)
            super().connection_lost(error)

        def send_400_response(self, msg: str) -> None:
            refuse(self.its_transport, 400, "the request is not HTTP")

    return Limited
