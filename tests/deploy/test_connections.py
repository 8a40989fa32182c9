"""Clients that are slow, many or gone, and a server told to end; no limit is longer than need be.

What is asserted is what the clients are answered and that connections are closed: a server without
the limit leaves them waiting, until the guard of the socket gives up.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from wcdas.deploy import connections, serving
from wcdas.deploy.connections import Connections, Server
from wcdas.deploy.limits import Limits
from wcdas.errors import InputError

GUARD = 120  # seconds, against hangs
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Answers:
    """In place of a model: answers wait until they may be given."""

    top, prior, abstain = 1, None, None
    model = SimpleNamespace(
        info=SimpleNamespace(dataset="d", method="m", class_names=["a"], class_counts=[1])
    )

    def __init__(self) -> None:
        self.may = threading.Event()
        self.may.set()
        self.begun = threading.Semaphore(0)
        self.at_a_time = self.most = 0
        self.lock = threading.Lock()

    def decode(self, image: bytes) -> torch.Tensor:
        if image == b"bug":
            raise ZeroDivisionError
        if image == b"text":
            raise InputError("not an image")
        return torch.zeros(1)

    def answer(self, inputs: torch.Tensor) -> Iterator[SimpleNamespace]:
        with self.lock:
            self.at_a_time += 1
            self.most = max(self.most, self.at_a_time)
        self.begun.release()
        assert self.may.wait(GUARD)
        with self.lock:
            self.at_a_time -= 1
        yield SimpleNamespace(as_table=lambda: {"file": "", "status": "ok"})


class Served(SimpleNamespace):
    """A server of this process, and a client of it."""

    def connect(self, request: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=GUARD)
        self.clients.append(client)
        client.sendall(request)
        return client

    def post(self, image: bytes) -> socket.socket:
        return self.connect(HEAD + f"Content-Length: {len(image)}\r\n\r\n".encode() + image)

    def until(self, true: Callable[[Connections], object]) -> None:
        give_up = time.monotonic() + GUARD
        while not true(self.server.connections):
            assert time.monotonic() < give_up
            time.sleep(0.002)


@contextmanager
def served(limit: int = 1000, **limits: float) -> Iterator[Served]:
    answers = Answers()
    kept = Limits(**limits)
    server = Server(serving.create_app(answers, limit, kept), kept)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        found = Served(server=server, thread=thread, answers=answers, port=port, clients=[])
        try:
            yield found
        finally:
            answers.may.set()
            server.should_exit = True
            thread.join(GUARD)
            for client in found.clients:
                client.close()
        assert not thread.is_alive()


def reply(client: socket.socket) -> tuple[int, dict[str, str], dict]:
    """One answer; the connection stays open."""
    file = client.makefile("rb")
    status = int(file.readline().split()[1])
    headers = {}
    while line := file.readline().strip():
        name, _, value = line.decode().partition(": ")
        headers[name.lower()] = value
    return status, headers, json.loads(file.read(int(headers["content-length"])))


def error(client: socket.socket) -> tuple[int, str]:
    """Of an answer that says one thing in one line."""
    status, headers, table = reply(client)
    assert headers["content-type"] == "application/json"
    assert list(table) == ["error"]
    assert "\n" not in table["error"]
    return status, table["error"]


def closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("begun", [b"", b"GET /hea", HEAD, HEAD + b"X-Slow: "])
def test_headers_that_do_not_arrive(begun):
    with served(headers=0.2) as server:
        client = server.connect(begun)
        assert error(client) == (408, "the headers took too long")
        assert closed(client)


def test_headers_that_trickle():
    """Every byte that comes in time does not begin the time anew."""
    with served(headers=0.5) as server:
        client = server.connect(HEAD + b"X-Slow: ")
        for _ in range(100 * GUARD):
            if select.select([client], [], [], 0.01)[0]:
                break
            client.sendall(b"x")
        assert error(client)[0] == 408


def test_the_headers_of_a_second_request_that_do_not_arrive():
    with served(headers=0.5) as server:
        client = server.connect(GET)
        assert reply(client)[0] == 200
        client.sendall(GET[:10])
        assert error(client)[0] == 408
        assert closed(client)


@pytest.mark.parametrize("how", [b"Content-Length: 900\r\n\r\nabc",
                                 b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"])  # fmt: skip
def test_a_body_that_does_not_arrive(how):
    with served(body=0.2, linger=0.2) as server:
        client = server.connect(HEAD + how)
        assert error(client) == (408, "the file took longer than 0.2 s")
        assert closed(client)


def test_an_answer_that_takes_too_long():
    with served(answer=0.2) as server:
        server.answers.may.clear()
        client = server.post(b"image")
        status, headers, table = reply(client)
        assert (status, headers["retry-after"]) == (503, "1")
        assert table == {"error": "no answer within 0.2 s; try again later"}


def test_an_answer_that_is_not_taken():
    """Of so many requests that neither side's buffers hold the answers."""
    with served(body=0.2, answer=0.2, linger=0.2) as server:
        client = server.connect()
        requests = GET.replace(b"/health", b"/page.js") * 1_000_000
        with pytest.raises(ConnectionError):
            client.sendall(requests)


def test_a_file_that_is_too_large_is_refused_before_it_is_sent():
    with served(limit=1000) as server:
        client = server.connect(HEAD + b"Content-Length: 1001\r\n\r\n")
        assert error(client) == (413, "the file is larger than 0.001 MB; make it smaller")
        client.sendall(bytes(1001))
        assert closed(client)


def test_a_file_of_no_length_said_that_is_too_large():
    with served(limit=1000) as server:
        client = server.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        client.sendall(b"3e9\r\n" + bytes(1001) + b"\r\n")
        assert error(client)[0] == 413


@pytest.mark.parametrize("path", [b"/predict", b"/none"])
def test_who_sends_to_the_end_before_reading_learns_why(path):
    """Although the connection is closed afterwards."""
    with served(limit=1000, linger=GUARD) as server:
        head = HEAD.replace(b"/predict", path) + b"Connection: close\r\nContent-Length: 20000000"
        client = server.connect(head + b"\r\n\r\n")
        for _ in range(20):
            client.sendall(bytes(1_000_000))
        assert error(client)[0] == (413 if path == b"/predict" else 404)
        assert closed(client)


def test_who_neither_sends_the_rest_nor_leaves_is_left():
    with served(limit=1000, linger=0.2) as server:
        client = server.connect(HEAD + b"Content-Length: 1001\r\n\r\nabc")
        assert error(client)[0] == 413
        assert closed(client)


@pytest.mark.parametrize("begun", [GET[:-2], HEAD + b"Content-Length: 5\r\n\r\nim"])
def test_too_many_connections(begun):
    """The one whose request is awaited the longest goes; the newest is served."""
    with served(connections=3) as server:
        slow = [server.connect(begun) for _ in range(3)]
        server.until(lambda connections: len(connections.open) == 3)
        assert reply(server.connect(GET))[0] == 200
        status, headers, table = reply(slow[0])
        assert (status, headers["retry-after"]) == (503, "1")
        assert table == {"error": "too many connections; try again later"}
        assert closed(slow[0])
        slow[1].sendall(b"\r\n" if begun in GET else b"age")
        assert reply(slow[1])[0] == 200


def test_who_waits_for_an_answer_keeps_the_connection():
    with served(connections=2) as server:
        server.answers.may.clear()
        waiting = [server.post(b"image") for _ in range(2)]
        server.until(lambda found: len(found.deadlines) == 2 and not found.awaited)
        assert error(server.connect())[0] == 503
        server.answers.may.set()
        assert [reply(client)[0] for client in waiting] == [200, 200]


def test_too_many_images(monkeypatch):
    """As many as there are cores are looked at, a few wait, the rest is told to come again."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with served(queue=1) as server:
        server.answers.may.clear()
        looked_at = [server.post(b"image") for _ in range(2)]
        for _ in looked_at:
            assert server.answers.begun.acquire(timeout=GUARD)
        others = [server.post(b"image") for _ in range(3)]
        refused = [next_answered(others) for _ in range(2)]
        for client in refused:
            status, headers, table = reply(client)
            assert (status, headers["retry-after"]) == (503, "1")
            assert table == {"error": "too many images wait; try again later"}
        server.answers.may.set()
        for client in (*looked_at, *others):
            assert reply(client)[0] == 200
        assert server.answers.most == 2


def next_answered(clients: list[socket.socket]) -> socket.socket:
    """The first to be answered, which leaves the list."""
    ready, _, _ = select.select(clients, [], [], GUARD)
    clients.remove(ready[0])
    return ready[0]


def test_threads_stay_as_many_as_cores_when_answers_take_too_long(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with served(answer=0.2) as server:
        server.answers.may.clear()
        clients = [server.post(b"image") for _ in range(4)]
        assert [reply(client)[0] for client in clients] == [503] * 4
        server.answers.may.set()
        while reply(server.post(b"image"))[0] == 503:
            pass
        assert server.answers.most == 1


@pytest.mark.parametrize("sent", [b"", b"abc"])
def test_a_client_that_leaves_makes_no_noise(capfd, sent):
    with served() as server:
        for _ in range(3):
            client = server.connect(HEAD + b"Content-Length: 900\r\n\r\n" + sent)
            server.until(lambda connections: connections.deadlines)
            client.close()
            server.until(lambda connections: not connections.open)
        assert reply(server.connect(GET))[0] == 200
    assert capfd.readouterr() == ("", "")


def test_what_is_no_request_makes_no_noise(capfd):
    with served() as server:
        client = server.connect(b"\x16\x03\x01 this is TLS\r\n\r\n")
        assert error(client) == (400, "the request is not HTTP")
        assert closed(client)
        upgrade = GET[:-2] + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        assert reply(server.connect(upgrade))[0] == 200
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("host", [b"localhost", b"evil.example"])
def test_a_path_that_is_none_is_not_redirected(host):
    """To the host that was named."""
    with served() as server:
        client = server.connect(b"GET ? HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert error(client) == (404, "Not Found")


def test_a_mistake_of_the_server_is_said_to_both_sides(capfd):
    with served() as server:
        status, said = error(server.post(b"bug"))
        assert status == 500
        assert "the server failed on this request" in said
        assert error(server.post(b"text")) == (415, "not an image")
        assert reply(server.post(b"image"))[0] == 200
    out, errors = capfd.readouterr()
    assert out == ""
    assert errors.endswith("ZeroDivisionError\n")


def test_it_ends_whatever_the_clients_do(capfd):
    with served(stop=0.1) as server:
        server.answers.may.clear()
        server.connect()
        server.connect(GET[:10])
        server.connect(HEAD + b"Content-Length: 900\r\n\r\nabc")
        server.connect(HEAD + b"Content-Length: 1001\r\n\r\nabc")
        server.post(b"image")
        assert server.answers.begun.acquire(timeout=GUARD)
        server.until(lambda connections: len(connections.deadlines) == 3)
        server.server.should_exit = True
        server.thread.join(GUARD)
        assert not server.thread.is_alive()
        assert all(map(left, server.clients))
    assert capfd.readouterr() == ("", "")


def left(client: socket.socket) -> bool:
    """Whether the connection is closed, after whatever was said."""
    while True:
        try:
            if client.recv(1000) == b"":
                return True
        except ConnectionResetError:
            return True


def test_what_is_under_way_is_answered_before_the_end():
    with served(stop=GUARD, headers=0.2) as server:
        server.answers.may.clear()
        client = server.post(b"image")
        assert server.answers.begun.acquire(timeout=GUARD)
        server.server.should_exit = True
        server.until(lambda connections: refuses(server.port))
        server.answers.may.set()
        assert reply(client)[0] == 200


def refuses(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def test_a_uvicorn_whose_protocol_has_moved_still_serves(monkeypatch):
    monkeypatch.setattr(connections, "H11Protocol", None)
    with served() as server:
        assert reply(server.connect(GET))[0] == 200
        assert reply(server.post(b"image"))[0] == 200
        assert error(server.connect(HEAD + b"Content-Length: 1001\r\n\r\n"))[0] == 413


HELD = """
import sys, threading
from wcdas import cli
from wcdas.deploy.answers import Answerer

def answer(self, inputs):
    print("looks", flush=True)
    threading.Event().wait()

Answerer.answer = answer
sys.argv = ["wcdas", "serve", sys.argv[1], "--port", "0"]
cli.main()
"""


@pytest.mark.parametrize(
    ("asked", "status"),
    [(signal.SIGINT, 0), pytest.param(signal.SIGTERM, 0, marks=pytest.mark.slow)],
)
def test_the_command_ends_whatever_the_clients_do(odd_run, every_kind, asked, status):
    """Not even an image that is looked at for ever keeps it."""
    with subprocess.Popen(
        [sys.executable, "-c", HELD, str(odd_run.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[0].rpartition(":")[2])
        image = (every_kind / "colour.png").read_bytes()
        server = Served(port=port, clients=[])
        server.connect(GET[:10])
        server.connect(HEAD + b"Content-Length: 900\r\n\r\nabc")
        server.post(image)
        assert process.stdout.readline() == "looks\n"
        process.send_signal(asked)
        try:
            _, errors = process.communicate(timeout=GUARD)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        for client in server.clients:
            client.close()
        assert (process.returncode, errors) == (status, "")
