"""Pretrained weights: the cache, a Hub that serves, a Hub that is silent. No network is used."""

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import safetensors.torch
import timm
import torch
from huggingface_hub import constants

from wcdas.backbones import WeightsUnavailable, create_backbone
from wcdas.backbones.weights import answers

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def silent_hub(monkeypatch):
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        server.setblocking(False)
        yield server


def was_asked(server):
    """Whether anyone has connected; the system takes a connection before `accept` does."""
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="module")
def weights():
    torch.manual_seed(0)
    return timm.create_model("resnet18").state_dict()


def test_the_cache_is_enough(cache, silent_hub, weights):
    repository = cache / "models--timm--resnet18.a1_in1k"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    safetensors.torch.save_file(weights, snapshot / "model.safetensors")
    backbone = create_backbone("resnet18", weights="pretrained")
    assert not was_asked(silent_hub)
    loaded = backbone.network.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in loaded.items())
    assert backbone.mean == (0.485, 0.456, 0.406)


def test_a_silent_hub_is_left(cache, silent_hub, monkeypatch):
    """After a time, which is short here."""
    monkeypatch.setattr(answers, "__defaults__", (0.1,))
    with pytest.raises(WeightsUnavailable, match=r"'resnet18'.*cannot be reached") as error:
        create_backbone("resnet18", weights="pretrained")
    assert "\n" not in str(error.value)


def test_offline_mode_asks_nobody(cache, silent_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsUnavailable, match="HF_HUB_OFFLINE"):
        create_backbone("resnet18", weights="pretrained")
    assert not was_asked(silent_hub)


@pytest.mark.parametrize("name", ["resnet32", "identity", "resnet10"])
def test_own_backbones_have_none(name):
    with pytest.raises(WeightsUnavailable, match=name):
        create_backbone(name, weights="pretrained")


def test_a_model_timm_has_no_weights_for(cache):
    with pytest.raises(WeightsUnavailable, match="timm has none"):
        create_backbone("regnetz_005", weights="pretrained")


def test_a_closed_port_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert not answers(f"http://127.0.0.1:{port}/", seconds=1e6)


@pytest.fixture
def hub(weights):
    """The two requests of the Hub that a download makes, for one file."""
    content = safetensors.torch.save(weights)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            found = self.path == "/timm/resnet18.a1_in1k/resolve/main/model.safetensors"
            self.send_response(200 if found else 404)
            self.send_header("ETag", '"abc"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content) if found else 0))
            self.end_headers()

        def do_GET(self):
            self.do_HEAD()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_hub_that_serves(hub, weights, tmp_path):
    """In a child process: the address of the Hub is read when its client is imported."""
    code = (
        "import sys, torch; from wcdas.backbones import create_backbone, weights\n"
        "weights.answers.__defaults__ = (300.0,)\n"
        "b = create_backbone('resnet18', weights='pretrained')\n"
        "torch.save(b.network.state_dict(), sys.argv[1])\n"
        "try: create_backbone('resnet34', weights='pretrained')\n"
        "except ValueError as error: print(error)"
    )
    environment = os.environ | {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path), "NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out.pth")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = torch.load(tmp_path / "out.pth", weights_only=True)
    assert all(torch.equal(value, weights[name]) for name, value in loaded.items())
    assert done.stdout.startswith("pretrained weights of 'resnet34' cannot be had: ")
    assert done.stdout.count("\n") == 1
