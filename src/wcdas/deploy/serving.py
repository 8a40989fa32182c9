"""A page and a JSON endpoint on this machine alone: an image in, an answer out."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import wcdas
from wcdas.checks import need
from wcdas.deploy.answers import Answerer
from wcdas.deploy.limits import RETRY, Limits
from wcdas.deploy.model import Source, load
from wcdas.errors import InputError

if TYPE_CHECKING:
    from starlette.applications import Starlette

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
MEGABYTE = 1_000_000
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
    from wcdas.deploy.connections import Server

    if not 0 < limit < float("inf"):
        raise InputError(f"limit is {limit:g}; expected a number of MB above 0")
    with _listening(port) as listening:
        answerer = Answerer(load(run, device), top, prior, abstain)
        app = create_app(answerer, int(limit * MEGABYTE))
        server = Server(app, Limits())
        announce(f"http://{HOST}:{listening.getsockname()[1]}")
        with suppress(KeyboardInterrupt):  # how a server is stopped
            server.run(sockets=[listening])


def create_app(answerer: Answerer, limit: int, limits: Limits | None = None) -> "Starlette":
    """The application, for any ASGI server on asyncio; `limit` is the largest file, in bytes."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Host, Mount, Route, Router

    limits = limits or Limits()
    # An image of 100 million pixels takes a few hundred MB while it is decoded.
    cores = os.cpu_count() or 1
    threads = ThreadPoolExecutor(cores)
    room = asyncio.Semaphore(cores + limits.queue)

    def answer(image: bytes) -> dict[str, Any]:
        (found,) = answerer.answer(answerer.decode(image)[None])
        table = found.as_table()
        del table["file"]  # it has no name here
        return table

    def too_large() -> HTTPException:
        allowed = f"{limit / MEGABYTE:g} MB"
        return HTTPException(413, f"the file is larger than {allowed}; make it smaller")

    async def body(request: Request) -> bytes:
        image = bytearray()
        async for part in request.stream():
            image += part
            if len(image) > limit:
                raise too_large()
        return bytes(image)

    async def predict(request: Request) -> Response:
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise HTTPException(415, "send the image itself as the body, not a form")
        if int(request.headers.get("content-length", 0)) > limit:
            raise too_large()
        try:
            async with asyncio.timeout(limits.body):
                image = await body(request)
        except TimeoutError:
            raise HTTPException(408, f"the file took longer than {limits.body:g} s") from None
        if not image:
            raise HTTPException(400, "the body is empty; expected an image")
        if room.locked():
            raise HTTPException(503, "too many images wait; try again later", RETRY)
        try:
            async with room, asyncio.timeout(limits.answer):
                work = asyncio.get_running_loop().run_in_executor(threads, answer, image)
                return JSONResponse(await work, headers=HEADERS)
        except TimeoutError:
            raise HTTPException(
                503, f"no answer within {limits.answer:g} s; try again later", RETRY
            ) from None
        except InputError as error:
            raise HTTPException(415, str(error)) from None

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        said = {"error": error.detail}
        return JSONResponse(said, error.status_code, headers={**HEADERS, **(error.headers or {})})

    async def failed(request: Request, error: Exception) -> Response:
        why = "the server failed on this request; it says why where it was started"
        return JSONResponse({"error": why}, 500, headers=HEADERS)

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # that nobody reads

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
    pages = Router([Route("/predict", predict, methods=["POST"]), *routes], redirect_slashes=False)
    app = Starlette(
        # Another site that has its name point here does not get an answer.
        routes=[*(Host(name, pages) for name in HOSTS), Mount("/", stranger)],
        exception_handlers={HTTPException: refuse, ClientDisconnect: gone, Exception: failed},
    )
    app.router.redirect_slashes = False
    return app


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
