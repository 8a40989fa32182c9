"""`wcdas serve` alone, under slow clients and under many: latency, memory, and how it ends.

    python benchmarks/serving.py [--requests 200] [--slow 200] [--parallel 200]

A server process of a small network, trained for one epoch on the digits as JPEG files, is asked
for the class of one of them, by one client on a connection of its own each time: with nobody else,
beside slow clients, of which half send their headers a byte at a time and half a body, and beside
clients that ask over and over in parallel. Latency is that of answers; what is refused is counted.
It is stopped by Ctrl-C while slow clients are there. Nothing leaves 127.0.0.1.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import wcdas

HOST = "127.0.0.1"
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
PATIENCE = 60  # seconds for a request, for the measurement of one situation, for the end


class Memory:
    """The resident memory of a process in MB, looked at every 50 ms: now and at its most."""

    def __init__(self, process: int) -> None:
        self.file, self.most = Path(f"/proc/{process}/statm"), 0.0

    def now(self) -> float:
        return int(self.file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    async def follow(self) -> None:
        while True:
            self.most = max(self.most, self.now())
            await asyncio.sleep(0.05)


def train(folder: Path) -> wcdas.Run:
    digits = load_digits()
    for i, (pixels, target) in enumerate(zip(digits.images, digits.target, strict=True)):
        place = folder / "digits" / str(target)
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((pixels * 15.9).astype("uint8")).resize((32, 32))
        picture.save(place / f"{i}.jpg")
    settings = {"epochs": 1, "backbone.name": "resnet8"}
    return wcdas.train(
        folder / "digits", settings=settings, out=folder / "run", device="cpu", report=False
    )


async def ask(port: int, image: bytes) -> str:
    """The status of one answer, or that the connection was closed without."""
    writer = None
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(HOST, port)
            length = f"Content-Length: {len(image)}\r\nConnection: close\r\n\r\n".encode()
            writer.write(HEAD + length + image)
            line = await reader.readline()
            await reader.read()
            return line.split()[1].decode() if line else "closed"
    except OSError as error:
        return "late" if isinstance(error, TimeoutError) else "closed"
    finally:
        if writer is not None:
            writer.close()


async def trickle(port: int, begin: bytes) -> None:
    """A byte a second, for ever, on a connection that is opened again when it is closed."""
    while True:
        writer = None
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(begin)
            while not reader.at_eof():
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await reader.read(1000)
                writer.write(b"x")
                await writer.drain()
        if writer is not None:
            writer.close()
        await asyncio.sleep(0.05)


async def insist(port: int, image: bytes, statuses: Counter[str]) -> None:
    """One request after the other, with a second between where it is refused."""
    while True:
        status = await ask(port, image)
        statuses[status] += 1
        if status != "200":
            await asyncio.sleep(1)


async def measure(name: str, port: int, image: bytes, requests: int, memory: Memory) -> None:
    times, statuses = [], Counter[str]()
    until = time.perf_counter() + PATIENCE
    for _ in range(requests):
        if (begin := time.perf_counter()) > until:
            break
        status = await ask(port, image)
        statuses[status] += 1
        if status == "200":
            times.append(1000 * (time.perf_counter() - begin))
        else:
            await asyncio.sleep(0.05)
    p50, p99 = np.percentile(times, [50, 99]) if times else (np.nan, np.nan)
    counted = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    print(f"{name:26}{p50:9.1f}{p99:9.1f}{memory.now():10.0f}  {counted}", flush=True)


async def measure_all(options: argparse.Namespace, port: int, process: int, image: bytes) -> None:
    memory = Memory(process)
    following = asyncio.create_task(memory.follow())
    print(f"{'':26}{'p50 ms':>9}{'p99 ms':>9}{'RSS MB':>10}  answers")
    print(f"{'at the start':26}{'':18}{memory.now():10.0f}")
    await measure("warming up", port, image, 20, memory)
    await measure("alone", port, image, options.requests, memory)

    many = Counter[str]()
    crowd = [asyncio.create_task(insist(port, image, many)) for _ in range(options.parallel)]
    await asyncio.sleep(1)
    await measure(f"{options.parallel} in parallel", port, image, options.requests, memory)
    await end(crowd)
    counted = ", ".join(f"{count} × {status}" for status, count in sorted(many.items()))
    print(f"{'    of these':54}  {counted}")

    begins = [HEAD + b"X-Slow: ", HEAD + b"Content-Length: 1000000\r\n\r\n"]
    slow = [asyncio.create_task(trickle(port, begins[i % 2])) for i in range(options.slow)]
    await asyncio.sleep(1)
    await measure(f"{options.slow} slow", port, image, options.requests, memory)
    os.kill(process, signal.SIGINT)
    begin = time.perf_counter()
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not ended(process):
                await asyncio.sleep(0.01)
    print(f"ended {time.perf_counter() - begin:.1f} s after Ctrl-C beside slow clients")
    await end([*slow, following])
    print(f"at most {memory.most:.0f} MB")


def ended(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200, help="of the client that is timed")
    parser.add_argument("--slow", type=int, default=200, help="clients that are slow")
    parser.add_argument("--parallel", type=int, default=200, help="clients that ask at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = train(Path(name))
        image = next(Path(name, "digits", "3").iterdir()).read_bytes()
        command = [sys.executable, "-m", "wcdas.cli", "serve", str(run.path), "--port", "0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline().split()[0].rpartition(":")[2])
                asyncio.run(measure_all(options, port, process.pid, image))
            finally:
                process.kill()
            _, errors = process.communicate()
        print(f"exit status {process.returncode}, {len(errors.splitlines())} lines of errors")


if __name__ == "__main__":
    main()
