"""A page and a JSON endpoint on this machine alone: an image in, an answer out."""

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import wcdas
from wcdas.checks import need
from wcdas.deploy.answers import Answerer
from wcdas.deploy.model import Source, load
from wcdas.errors import InputError

if TYPE_CHECKING:
    from starlette.applications import Starlette

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
MEGABYTE = 1_000_000
READ_ON = 10  # times the limit: a sender that is read to its end sees why it was refused
PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
HEADERS = {
    # Nothing but the page's own files, and the image as the browser holds it.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(
    run: Source,
    port: int = 8000,
    *,
    top: int = 5,
    prior: str | None = None,
    abstain: float | None = None,
    limit: float = 20,
    device: str = "auto",
    announce: Callable[[str], object] = print,
) -> None:
    """Serve a page for images at http://127.0.0.1:PORT until it is stopped.

    Args:
        run: a run's folder, or its model file.
        port: 0 takes a free one.
        top: how many classes are shown.
        prior: "uniform", "train" or a file: the class mix to predict for.
        abstain: the probability below which the answer is "unsure".
        limit: the largest file, in MB.
        device: auto, cpu, cuda or cuda:N.
        announce: is given the address once the page can be opened.
    """
    need("serve", "starlette", "uvicorn")
    import uvicorn

    if not 0 < limit < float("inf"):
        raise InputError(f"limit is {limit:g}; expected a number of MB above 0")
    with _listening(port) as listening:
        answerer = Answerer(load(run, device), top, prior, abstain)
        app = create_app(answerer, int(limit * MEGABYTE))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False))
        announce(f"http://{HOST}:{listening.getsockname()[1]}")
        with suppress(KeyboardInterrupt):  # how a server is stopped
            server.run(sockets=[listening])


def create_app(answerer: Answerer, limit: int) -> "Starlette":
    """The application, for any ASGI server; `limit` is the largest file, in bytes."""
    from anyio import CapacityLimiter
    from anyio.to_thread import run_sync
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Host, Mount, Route, Router

    # An image of 100 million pixels takes a few hundred MB while it is decoded.
    at_a_time = CapacityLimiter(os.cpu_count() or 1)

    def answer(image: bytes) -> dict[str, Any]:
        (found,) = answerer.answer(answerer.decode(image)[None])
        table = found.as_table()
        del table["file"]  # it has no name here
        return table

    async def predict(request: Request) -> Response:
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise HTTPException(415, "send the image itself as the body, not a form")
        image, size = bytearray(), 0
        async for part in request.stream():
            size += len(part)
            if size <= limit:
                image += part
            elif size > READ_ON * limit:
                break
        if size > limit:
            allowed = f"{limit / MEGABYTE:g} MB"
            raise HTTPException(413, f"the file is larger than {allowed}; make it smaller")
        if size == 0:
            raise HTTPException(400, "the body is empty; expected an image")
        try:
            table = await run_sync(answer, bytes(image), limiter=at_a_time)
        except InputError as error:
            raise HTTPException(415, str(error)) from None
        return JSONResponse(table, headers=HEADERS)

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        said = {"error": error.detail}
        return JSONResponse(said, error.status_code, headers={**HEADERS, **(error.headers or {})})

    async def stranger(scope: Any, receive: Any, send: Any) -> None:
        raise HTTPException(400, f"the host name is unknown; expected {' or '.join(HOSTS)}")

    info = answerer.model.info
    facts = {
        "status": "ok",
        "version": wcdas.__version__,
        "dataset": info.dataset,
        "method": info.method,
        "classes": len(info.class_names),
        "train_images": sum(info.class_counts),
        "top": answerer.top,
        "prior": answerer.prior,
        "abstain": answerer.abstain,
        "limit_bytes": limit,
    }
    fixed: dict[str, Response] = {"/health": JSONResponse(facts, headers=HEADERS)}
    for path, (name, kind) in PAGE.items():
        content = (files("wcdas.deploy") / "page" / name).read_bytes()
        fixed[path] = Response(content, media_type=kind, headers=HEADERS)
    routes = [Route(path, reply, methods=["GET"]) for path, reply in fixed.items()]
    pages = Router([Route("/predict", predict, methods=["POST"]), *routes])
    return Starlette(
        # Another site that has its name point here does not get an answer.
        routes=[*(Host(name, pages) for name in HOSTS), Mount("/", stranger)],
        exception_handlers={HTTPException: refuse},
    )


def _listening(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise InputError(f"port is {port}; expected 0 to 65535")
    try:
        # It listens from now on: who reads the address and asks at once waits for the answer.
        return socket.create_server((HOST, port))
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        reason = "in use" if used else os.strerror(error.errno or 0).lower()
        raise InputError(f"port {port} is {reason}; choose another with --port") from None
