"""Real requests to a real server, changed at random, and the one thing asked of it: it answers in
HTTP, with what was wanted or one line that says why not, or closes what is no HTTP; then it answers
the next one.

By hand, without end: `python -m tests.fuzz.served --requests 2000 --seed 1`.
"""

import argparse
import io
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from tests.fuzz.cases import Ground, changed_bytes

SECONDS, MEGABYTES = 120, 1_000  # for a case, which is for hangs; that the server may grow by
LIMIT = 1_000_000  # of a file
# As `wcdas serve`, but for its patience.
PROGRAM = """
import sys
from functools import partial
from wcdas import cli
from wcdas.deploy import serving

serving.Limits = partial(serving.Limits, headers=0.5, body=0.5, linger=0.5)
sys.argv = ["wcdas", "serve", sys.argv[1], "--port", "0", "--device", "cpu", "--limit", "1"]
cli.main()
"""

# What parts of a request may be instead, one between two bars.
METHODS = b"GET|POST|HEAD|PUT|DELETE|OPTIONS|TRACE|CONNECT|PRI||get|P\xd6ST|PO ST|GET\t".split(b"|")
TARGETS = (
    b"/|/health|/predict|/page.js|/page.css|/none|/predict/||*|//|//evil/|/../serving.py|/%00"
    b"|/%ff%fe|/%2e%2e/%2e%2e/etc/passwd|/%|/%zz|/\xff\xfe|/\xc3\xa9|/pre dict|?|#|/predict#x"
    b"|/predict?a=b&c|http://localhost/health|http://evil/predict|://|evil:443|/\0|/\r|/;x=y|\\"
).split(b"|")
VERSIONS = (
    b"HTTP/1.1|HTTP/1.1|HTTP/1.0|HTTP/0.9|HTTP/2.0|HTTP/1.1 |HTTP/1.||http/1.1|HTTP/11.1|ICY"
    b"|HTTP/1.1\0"
).split(b"|")
HOSTS = (
    b"|evil.example|localhost:1|LOCALHOST|127.0.0.1:99999999|[::1]:80|localhost:abc|localhost, evil"
    b"|user@localhost|\xff\xfe|localhost.|a b|localhost/../evil|[|]|[::|localhost:-1|:|?"
).split(b"|")
LENGTHS = (
    b"-1|+5|abc|1e3|999999999999999999999999| 5|5, 5|5, 6||0x10|0|007|1|999999|1000001|\xd9\xa3|5\0"
    b"|1_0|18446744073709551616"
).split(b"|")
ENCODINGS = (
    b"chunked|gzip, chunked|identity|chunked, chunked|xchunked|CHUNKED||chunked\t|gzip|\x0bchunked"
    b"|chunked;q=1"
).split(b"|")
KINDS = (
    b"image/jpeg|multipart/form-data; boundary=x|multipart/|MULTIPART/x|\xff||text/plain\t|;"
    b"|application/json; charset=\xe9|image/svg+xml"
).split(b"|")
OTHERS = (
    b"Connection: close|Connection: keep-alive|Connection: upgrade|Connection: \xff|Connection: "
    b"|Upgrade: websocket|Upgrade: h2c|Upgrade: \xff|Sec-WebSocket-Key: x|Sec-WebSocket-Version: 13"
    b"|HTTP2-Settings: AAMAAABk|Expect: 100-continue|Expect: 200-ok|Expect: |Range: bytes=5-1"
    b"|X-Forwarded-Host: evil|X-Forwarded-For: 1.2.3.4|Forwarded: for=x|If-None-Match: *|Cookie: =;"
    b"|Content-Encoding: gzip|: x|A B: x|X\0: x|X\xff: x| X: x|X: \0|X: a\r\n folded|X: a\nY: b"
    b"|X: \r"
).split(b"|")
LONG = 70_000
METHODS += [b"\0", b"A" * LONG]
TARGETS += [b"/" + b"a" * LONG, b"/" + b"../" * 3000, b"/predict?" + b"c" * 5000]
HOSTS.append(b"x" * 9000)
LENGTHS.append(b"9" * 5000)
OTHERS += [b"X: " + b"y" * LONG, b"N" * LONG + b": x", b"X: " + bytes(range(1, 256))]
GARBAGE = (
    b"|\0\0\0\0|\r\n\r\n\r\n\r\n|\n\n\n\n|\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03| "
    b"|GET /health\r\n\r\n|PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n|HTTP/1.1 200 OK\r\n\r\n"
).split(b"|")
HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [ -~]*(?:\r\n[!#-'*+.0-9A-Z^-z|~-]+: [ -~]*)*\r\n\r\n")


class Outcome(NamedTuple):
    """What came of a case: `wrong` is empty where it was answered as it may be."""

    statuses: list[int]
    wrong: str


@dataclass
class Request:
    """Its parts, each of which may be odd."""

    method: bytes
    target: bytes
    version: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def encoded(self, newline: bytes = b"\r\n") -> bytes:
        lines = [b" ".join([self.method, self.target, self.version])]
        lines += [name + b": " + value for name, value in self.headers]
        return newline.join([*lines, b"", b""]) + self.body


def pictures() -> list[bytes]:
    """Real images of every kind that is taken, one of them above the limit."""
    pixels = np.random.RandomState(0).randint(0, 256, (24, 32, 3), np.uint8)
    image, files = Image.fromarray(pixels), []
    for form in ("png", "jpeg", "gif", "webp", "bmp", "tiff", "ppm"):
        file = io.BytesIO()
        image.save(file, form)
        files.append(file.getvalue())
    for mode, size in (("L", (8, 8)), ("1", (9000, 9000)), ("CMYK", (640, 480))):
        file = io.BytesIO()
        Image.new(mode, size).save(file, "tiff" if mode == "CMYK" else "png")
        files.append(file.getvalue())
    return files


PICTURES = pictures()


def good_request(rng: random.Random) -> Request:
    """Return one as a client sends it."""
    host = (b"Host", rng.choice([b"localhost", b"127.0.0.1:8000"]))
    if rng.random() < 0.3:
        target = rng.choice([b"/", b"/health", b"/page.js", b"/page.css"])
        return Request(b"GET", target, b"HTTP/1.1", [host], b"")
    body = rng.choice(PICTURES)
    if rng.random() < 0.1:
        body = rng.choice([b"", bytes(LIMIT + 1), b"text", b"%!PS-Adobe-3.0 EPSF-3.0\n"])
    elif rng.random() < 0.6:
        body = changed_bytes(body, rng)
    headers = [host, (b"Content-Type", rng.choice([b"image/png", b"application/octet-stream"]))]
    if rng.random() < 0.25:
        headers.append((b"Transfer-Encoding", b"chunked"))
        body = chunked(body, rng)
    else:
        headers.append((b"Content-Length", b"%d" % len(body)))
    return Request(b"POST", b"/predict", b"HTTP/1.1", headers, body)


def chunked(body: bytes, rng: random.Random) -> bytes:
    size = rng.choice([1, 7, 1000, 10**7])
    size = max(size, len(body) // 1000)
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    end = rng.choice(
        [b"0\r\n\r\n"] * 5 + [b"0\r\nX: y\r\n\r\n", b"0\r\n", b"", b"-1\r\n", b"g\r\n"]
    )
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


def change(request: Request, rng: random.Random) -> None:
    """Make one part of it odd."""
    headers = request.headers
    at = rng.randrange(len(headers) + 1)
    named = {b"Host": HOSTS, b"Content-Length": LENGTHS, b"Content-Type": KINDS}
    named[b"Transfer-Encoding"] = ENCODINGS
    match rng.randrange(10):
        case 0:
            request.method = rng.choice(METHODS)
        case 1:
            request.target = rng.choice(TARGETS)
        case 2:
            request.version = rng.choice(VERSIONS)
        case 3 | 4:
            name = rng.choice(list(named))
            if rng.random() < 0.6:  # in its place, else beside it
                headers[:] = [pair for pair in headers if pair[0] != name]
            headers.insert(min(at, len(headers)), (name, rng.choice(named[name])))
        case 5:
            name, _, value = rng.choice(OTHERS).partition(b": ")
            headers.insert(at, (name, value))
        case 6 if headers:
            headers.append(rng.choice(headers))
        case 7 if headers:
            del headers[rng.randrange(len(headers))]
        case 8:
            headers += [(b"X-%d" % i, b"y") for i in range(rng.choice([10, 500, 20_000]))]
        case _:
            request.body = changed_bytes(request.body, rng)


def sent_by(rng: random.Random) -> bytes:
    """Return what a client sends: a few requests, most of them odd."""
    if rng.random() < 0.05:
        return changed_bytes(rng.choice(GARBAGE), rng)
    whole = b""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        request = good_request(rng)
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            change(request, rng)
        newline = b"\r\n" if rng.random() < 0.95 else rng.choice([b"\n", b"\r", b"\n\r"])
        whole += request.encoded(newline)
    if rng.random() < 0.2:
        whole = changed_bytes(whole, rng)
    if rng.random() < 0.6:  # what shows that the one before had the end it said, and ends soon
        whole += b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    return whole


class Server:
    """The server of a run, in a process of its own, which what it says shows in `folder`."""

    def __init__(self, run: Path, folder: Path) -> None:
        self.said = folder / "stderr"
        with self.said.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(run)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split()[0].rpartition(b":")[2])
        self.expected = self.ask()
        self.memory, self.open = self.most(), self.files()

    def most(self) -> int:
        """The most memory that it has held, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        return int(kilobytes) // 1000

    def files(self) -> int:
        """How many files and connections it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def ask(self) -> bytes:
        """What it answers to a good request."""
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += b"Content-Length: %d\r\n\r\n" % len(PICTURES[0])
        for _ in range(20):
            with self.connect() as client:
                client.sendall(head + PICTURES[0])
                answer = b"".join(received(client))
            if not answer.startswith(b"HTTP/1.1 408 "):  # as on a machine that is too busy to send
                break
        return answer.partition(b"\r\n\r\n")[2]

    def trouble(self) -> str:
        """What is wrong with it after a case, if anything is."""
        if self.process.poll() is not None:
            return f"ended with status {self.process.returncode}"
        try:
            answer = self.ask()
        except OSError as error:
            return f"a good request afterwards: {error!r}"
        if answer != self.expected:
            return f"a good request afterwards is answered {answer[:300]!r}"
        if said := self.said.read_text(errors="replace"):
            self.said.write_text("")
            return f"it says {said[-1500:]}"
        if (grown := self.most() - self.memory) > MEGABYTES:
            return f"{grown:,} MB more memory"
        return ""

    def end(self) -> str:
        """Stop it once all clients are gone; return what is wrong with that."""
        give_up = time.monotonic() + SECONDS
        while self.files() > self.open:
            if time.monotonic() > give_up:
                return f"{self.files() - self.open} connections are left open"
            time.sleep(0.05)
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(SECONDS)
        return f"status {status} at the end" if status else self.said.read_text()


@contextmanager
def serving(run: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(run, Path(folder))
        try:
            yield server
        finally:
            server.process.kill()
            server.process.communicate()


def received(client: socket.socket) -> Iterator[bytes]:
    """All that comes until the connection is closed."""
    while part := client.recv(65536):
        yield part


def fuzz(server: Server, seed: int) -> Outcome:
    """Do the case of a seed."""
    rng = random.Random(f"request {seed}")
    sent = sent_by(rng)
    cuts = sorted(rng.randrange(len(sent) + 1) for _ in range(rng.choice([0, 0, 1, 3, 30])))
    end = rng.choice(["wait"] * 6 + ["half", "leave", "reset"])
    if end != "wait" and rng.random() < 0.7:  # in the middle
        sent = sent[: rng.randrange(len(sent) + 1)]
    answers, lost = exchange(server, sent, cuts, end, rng)
    statuses, wrong = judged(answers, sent, lost)
    if end == "wait" and not (statuses or lost or wrong):
        wrong = "closed without a word"
    return Outcome(statuses, wrong or server.trouble())


def exchange(
    server: Server, sent: bytes, cuts: list[int], end: str, rng: random.Random
) -> tuple[bytes, bool]:
    """Send it in pieces; return what came back, and whether some of it may be lost."""
    answers, linger = b"", struct.pack("ii", 1, 0)
    with server.connect() as client:
        try:
            for start, stop in zip([0, *cuts], [*cuts, len(sent)], strict=True):
                client.sendall(sent[start:stop])
                time.sleep(rng.choice([0, 0.001, 0.01]) if cuts else 0)
            if end == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            if end in ("reset", "leave"):
                return answers, True
            if end == "half":
                client.shutdown(socket.SHUT_WR)
            for part in received(client):
                answers += part
        except TimeoutError:
            return answers + b"hangs", False
        except OSError:  # it has refused, and there may be its answer
            with suppress(OSError):
                for part in received(client):
                    answers += part
            return answers, True
    return answers, end == "half"


def judged(answers: bytes, sent: bytes, lost: bool) -> tuple[list[int], str]:
    """Return the statuses of answers, and what is wrong with them."""
    statuses: list[int] = []
    while answers:
        found = HEAD.match(answers)
        if not found:
            return statuses, "" if lost else f"no HTTP: {answers[:300]!r}"
        status, answers = int(found[1]), answers[found.end() :]
        if status == 100 and b"100-continue" in sent:
            continue
        statuses.append(status)
        if status != 200 and not 400 <= status < 500 and status != 503:
            return statuses, f"status {status}"
        headers = dict(line.split(b": ", 1) for line in found[0].lower().split(b"\r\n")[1:-2])
        if not headers.get(b"content-length", b"").isdigit():
            return statuses, f"an answer without a length: {found[0]!r}"
        length = int(headers[b"content-length"])
        if b"HEAD" in sent and (not answers or HEAD.match(answers)):
            continue
        body, answers = answers[:length], answers[length:]
        if len(body) < length:
            return statuses, "" if lost else "an answer that ends early"
        if why := unclear(status, headers.get(b"content-type", b""), body):
            return statuses, why
    return statuses, ""


def unclear(status: int, kind: bytes, body: bytes) -> str:
    """What is wrong with the body of an answer."""
    if status == 200 and kind != b"application/json":
        return "" if kind.startswith(b"text/") else f"a page of {kind!r}"
    try:
        table = json.loads(body)
    except ValueError:
        return f"no JSON: {body[:300]!r}"
    if status == 200:
        return "" if table["status"] in ("ok", "unsure") else f"{table}"
    clear = list(table) == ["error"] and table["error"] and len(table["error"].splitlines()) == 1
    return "" if clear and len(body) < 1000 else f"unclear: {body[:300]!r}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Change real requests at random; report what breaks."
    )
    parser.add_argument("--requests", type=int, default=2000, help="cases, of one or a few each")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        with serving(ground.root / "run") as server:
            for seed in range(arguments.seed, arguments.seed + arguments.requests):
                outcome = fuzz(server, seed)
                counts.update(map(str, outcome.statuses or ["none"]))
                if outcome.wrong:
                    wrong += 1
                    print(f"seed {seed}: {outcome.statuses} {outcome.wrong}", flush=True)
                if (seed - arguments.seed + 1) % 100 == 0:
                    print(f"{seed - arguments.seed + 1} cases: {dict(counts)}", flush=True)
            grown = server.most() - server.memory
            if trouble := server.end():
                wrong += 1
                print(trouble)
    answers = dict(sorted(counts.items()))
    print(f"{arguments.requests} cases, {wrong} wrong, {grown:,} MB more at most: {answers}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
