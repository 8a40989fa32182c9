"""A real server process, spoken to over its socket."""

import io
import json
import socket
import struct
import urllib.error
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from PIL import Image

import wcdas
from wcdas import cli, usage


def ask(address: str, body: bytes, **headers: str) -> tuple[int, dict]:
    request = urllib.request.Request(f"{address}/predict", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_every_kind_of_picture_as_predicted_on_the_command_line(address, odd_run, every_kind):
    for answer in wcdas.predict_files(odd_run, every_kind, top=5, abstain=0.2, device="cpu"):
        with open(answer.file, "rb") as file:
            status, table = ask(address, file.read())
        expected = answer.as_table()
        assert status == 200
        assert (table["status"], table["answer"]) == (expected["status"], expected["answer"])
        for got, wanted in zip(table["top"], expected["top"], strict=True):
            assert got.pop("probability") == pytest.approx(wanted.pop("probability"), abs=2e-6)
            assert got == wanted


def test_requests_at_the_same_time_do_not_mix(address, every_kind):
    pictures = [file.read_bytes() for file in sorted(every_kind.iterdir())]
    alone = [ask(address, picture) for picture in pictures]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda picture: ask(address, picture), pictures * 4))
    assert together == alone * 4
    assert len({json.dumps(reply) for reply in alone}) > 5


def bomb() -> bytes:
    """A PNG whose header claims 60,000 × 60,000 pixels, in a few kB."""
    file = io.BytesIO()
    Image.new("1", (8, 8)).save(file, "png")
    header = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + b"\x01\x00\x00\x00\x00"
    crc = zlib.crc32(header).to_bytes(4, "big")
    return file.getvalue()[:12] + header + crc + file.getvalue()[33:]


def many_samples() -> bytes:
    """A TIFF that claims 828 values a pixel, of which Pillow has something to say."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "tiff")
    samples = struct.pack("<HHI", 277, 3, 1)
    assert samples in file.getvalue()
    return file.getvalue().replace(samples + b"\x03\0", samples + struct.pack("<H", 828))


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"just some text", 415, "not an image that can be read"),
        (b"<svg onload='alert(1)'/>", 415, "not an image that can be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "not an image"),
        (b"\xff\xd8\xff\xe0" + bytes(100), 415, "cannot be read"),
        (b"", 400, "the body is empty"),
        (bytes(1_000_001), 413, "the file is larger than 1 MB"),
        (bytes(8_000_000), 413, "the file is larger than 1 MB"),
        (bomb(), 415, "100,000,000 pixels"),
        (many_samples(), 415, "not an image"),
    ],
)
def test_what_is_refused(address, body, status, said):
    got, table = ask(address, body)
    assert got == status
    assert said in table.pop("error")
    assert table == {}


def test_a_form_is_told_what_to_send(address):
    status, table = ask(address, b"--x", **{"Content-Type": "multipart/form-data; boundary=x"})
    assert (status, table["error"]) == (415, "send the image itself as the body, not a form")


def get(address: str, path: str, host: str | None = None) -> tuple[int, str, bytes]:
    request = urllib.request.Request(f"{address}{path}", headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


def test_health(address):
    status, _, body = get(address, "/health")
    facts = json.loads(body)
    assert (status, facts["status"], facts["classes"], facts["limit_bytes"]) == (
        200,
        "ok",
        3,
        10**6,
    )
    assert facts["dataset"] == 'data "of" <b>odd names'


def test_pages_and_what_is_none(address):
    assert get(address, "/")[:2] == (200, "text/html; charset=utf-8")
    assert get(address, "/page.js")[:2] == (200, "text/javascript; charset=utf-8")
    for path, status in (
        ("/predict", 405),
        ("/predict/", 404),  # and not a redirect by the name that was asked for
        ("/none", 404),
        ("/../serving.py", 404),
    ):
        got, kind, body = get(address, path)
        assert (got, kind) == (status, "application/json")
        assert json.loads(body)["error"]


def test_a_name_that_another_site_points_here_gets_no_answer(address):
    for host in ("evil.example", "127x0y0z1", "localhost.evil.example"):
        for path in ("/health", "/", "/none"):
            status, kind, body = get(address, path, host=host)
            assert (status, kind) == (400, "application/json")
            assert "expected 127.0.0.1 or localhost" in json.loads(body)["error"]
        status, table = ask(address, b"x", Host=host)
        assert status == 400
        assert "host name" in table["error"]
    port = urlsplit(address).port
    assert get(address, "/health", host=f"localhost:{port}")[0] == 200


def test_it_listens_on_this_machine_alone(address):
    port = urlsplit(address).port
    with open("/proc/net/tcp") as file:
        lines = [line.split() for line in file.readlines()[1:]]
    listening = [line[1] for line in lines if line[3] == "0A"]
    assert [place for place in listening if place.endswith(f":{port:04X}")] == [
        f"0100007F:{port:04X}"
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "65536"], "port is 65536; expected 0 to 65535"),
        (["--limit", "0"], "limit is 0; expected a number of MB above 0"),
        (["--top", "0"], "top is 0"),
        (["--prior", "nowhere"], "prior 'nowhere' is neither"),
    ],
)
def test_slips(odd_run, capsys, options, said):
    assert usage.run(cli.app, ["serve", str(odd_run.path), "--port", "0", *options]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert said in error
    assert error.count("\n") == 1


def test_a_port_in_use(odd_run, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert usage.run(cli.app, ["serve", str(odd_run.path), "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"wcdas: port {port} is in use; choose another with --port\n"
