"""Weights from files, of one's own or of others."""

import copy
import os
import pickle

import pytest
import safetensors.torch
import timm
import torch
from timm.layers import resample_abs_pos_embed

from wcdas.backbones import create_backbone
from wcdas.errors import InputError


def save(state, path):
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return path


def refused(name, path, **options):
    with pytest.raises(InputError) as error:
        create_backbone(name, weights=path, **options)
    message = str(error.value)
    assert "\n" not in message
    assert str(path) in message
    return message


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    return timm.create_model("resnet18", num_classes=7).eval()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_a_classifier_of_timm(tmp_path, classifier, suffix):
    path = save(classifier.state_dict(), tmp_path / f"w{suffix}")
    backbone = create_backbone("resnet18", weights=path).eval()
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(
        backbone.forward_map(images), classifier.forward_features(images), rtol=0, atol=0
    )
    assert backbone.mean == (0.485, 0.456, 0.406)
    assert backbone.std == (0.229, 0.224, 0.225)


@pytest.mark.parametrize("name", ["resnet32", "resnet10", "resnet18"])
@pytest.mark.parametrize("neck", ["none", "linear"])
def test_the_model_of_a_run(tmp_path, name, neck):
    """Backbone, neck and head in one file, as training saves them."""
    trained = create_backbone(name)
    necked = copy.deepcopy(trained).attach_neck(neck)
    state = {f"backbone.{k}": v for k, v in necked.state_dict().items()}
    path = save(state | {"head.weight": torch.ones(5, 64)}, tmp_path / "model.safetensors")
    loaded = create_backbone(name, weights=str(path)).state_dict()
    assert all(torch.equal(loaded[k], v) for k, v in trained.state_dict().items())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state},
        lambda state: {f"module.{k}": v for k, v in state.items()},
        lambda state: {k: v for k, v in state.items() if "num_batches" not in k},
    ],
    ids=["state_dict", "model", "ddp", "old"],
)
def test_files_as_other_trainers_write_them(tmp_path, wrap):
    trained = create_backbone("resnet32")
    linear = {"linear.weight": torch.ones(10, 64), "linear.bias": torch.ones(10)}
    path = save(wrap(trained.state_dict() | linear), tmp_path / "w.pth")
    loaded = create_backbone("resnet32", weights=path)
    assert torch.equal(loaded.stage3[4].conv2.weight, trained.stage3[4].conv2.weight)


def test_filters_of_three_channels_serve_one(tmp_path, classifier):
    path = save(classifier.state_dict(), tmp_path / "w.safetensors")
    grey = create_backbone("resnet18", channels=1, weights=path).eval()
    images = torch.rand(2, 1, 32, 32)
    expected = classifier.forward_features(images.expand(-1, 3, -1, -1))
    torch.testing.assert_close(grey.forward_map(images), expected)
    assert grey.mean == pytest.approx([(0.485 + 0.456 + 0.406) / 3])


def test_another_backbone_is_named(tmp_path):
    path = save(create_backbone("resnet32").state_dict(), tmp_path / "w.safetensors")
    message = refused("resnet10", path)
    assert "layer1.0.conv1.weight is missing" in message
    assert message.count("missing") == 3
    assert "more; choose the backbone" in message


def test_shapes_and_names_that_do_not_fit(tmp_path):
    state = create_backbone("resnet32").state_dict()
    state["conv1.weight"] = torch.zeros(16, 1, 3, 3)
    state["stranger"] = torch.zeros(1)
    message = refused("resnet32", save(state, tmp_path / "w.safetensors"))
    assert "conv1.weight is (16, 1, 3, 3), expected (16, 3, 3, 3)" in message
    assert "stranger is unknown" in message


@pytest.mark.filterwarnings("error:Detected pickle protocol")
def test_code_in_a_pickle_is_never_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    for name, write in {"zip.pth": torch.save, "raw.pth": pickle_to}.items():
        path = tmp_path / name
        write({"conv1.weight": Bomb()}, path)
        assert "never run" in refused("resnet32", path)
    assert not (tmp_path / "exploded").exists()


def pickle_to(thing, path):
    path.write_bytes(pickle.dumps(thing))


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("length", [0, 5, 1000])
def test_torn_files(tmp_path, suffix, length):
    whole = save(create_backbone("resnet32").state_dict(), tmp_path / f"whole{suffix}")
    torn = tmp_path / f"torn{suffix}"
    torn.write_bytes(whole.read_bytes()[:length])
    refused("resnet32", torn)


def test_files_of_another_kind(tmp_path):
    assert "does not exist" in refused("resnet32", tmp_path / "nothing.safetensors")
    assert "is a folder" in refused("resnet32", tmp_path)
    (tmp_path / "text.pth").write_text("hello\n")
    assert "cut off or no file of PyTorch" in refused("resnet32", tmp_path / "text.pth")
    (tmp_path / "w.npz").write_bytes(b"x")
    assert "not a .safetensors or .pth" in refused("resnet32", tmp_path / "w.npz")
    torch.save([1, 2], tmp_path / "list.pth")
    assert "no state_dict" in refused("resnet32", tmp_path / "list.pth")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 18802816\n",
            "Git LFS pointer, not the weights; fetch them with git lfs pull",
        ),
        (b"\n<!DOCTYPE html>\n<html><body>Not found</body></html>" * 9, "a web page"),
    ],
    ids=["git-lfs", "html"],
)
def test_what_a_download_may_leave_instead(tmp_path, suffix, content, said):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    assert said in refused("resnet32", path)


def test_it_is_known_where_weights_came_from(tmp_path, classifier):
    path = save(classifier.state_dict(), tmp_path / "w.safetensors")
    assert create_backbone("resnet18", weights=path).weights_from == f"file {path}"
    assert not create_backbone("resnet18").pretrained
    own = save(create_backbone("resnet32").state_dict(), tmp_path / "own.pth")
    assert create_backbone("resnet32", weights=own).weights_from == f"file {own}"


@pytest.mark.parametrize("classes", [0, 7, 1000])
def test_positions_of_another_size_are_resampled(tmp_path, classes):
    """With any classifier in the file, or none."""
    torch.manual_seed(0)
    trained = timm.create_model("vit_tiny_patch16_224", num_classes=classes)
    path = save(trained.state_dict(), tmp_path / "w.safetensors")
    loaded = create_backbone("vit_tiny_patch16_224", input_size=64, weights=path).network
    expected = resample_abs_pos_embed(trained.pos_embed, [4, 4], num_prefix_tokens=1)
    torch.testing.assert_close(loaded.pos_embed, expected)
    others = trained.blocks.state_dict()
    assert all(torch.equal(value, others[k]) for k, value in loaded.blocks.state_dict().items())


def test_resampling_excuses_nothing_else(tmp_path):
    state = timm.create_model("vit_tiny_patch16_224", num_classes=0).state_dict()
    del state["blocks.3.mlp.fc1.weight"]
    path = save(state, tmp_path / "w.safetensors")
    message = refused("vit_tiny_patch16_224", path, input_size=64)
    assert "blocks.3.mlp.fc1.weight is missing" in message


@pytest.mark.parametrize("classes", [0, 7])
@pytest.mark.filterwarnings("ignore")  # of what timm resamples with
def test_windows_of_another_size_are_resampled(tmp_path, classes):
    trained = timm.create_model("swin_tiny_patch4_window7_224", num_classes=classes)
    path = save(trained.state_dict(), tmp_path / "w.pth")
    loaded = create_backbone("swin_tiny_patch4_window7_224", input_size=128, weights=path).network
    assert torch.equal(
        loaded.layers[3].blocks[1].mlp.fc1.weight, trained.layers[3].blocks[1].mlp.fc1.weight
    )


def test_a_size_that_cannot_be_resampled(tmp_path):
    path = save(timm.create_model("mixer_s16_224").state_dict(), tmp_path / "w.pth")
    assert "choose input_size=224, or" in refused("mixer_s16_224", path, input_size=64)
    create_backbone("mixer_s16_224", input_size=224, weights=path)


def test_a_network_that_keeps_an_empty_classifier(tmp_path):
    trained = timm.create_model("inception_next_atto")
    path = save(trained.state_dict(), tmp_path / "w.safetensors")
    loaded = create_backbone("inception_next_atto", weights=path).network
    assert loaded.head.fc2.weight.numel() == 0
    assert torch.equal(loaded.head.fc1.weight, trained.head.fc1.weight)


def test_a_file_below_ones_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = save(create_backbone("resnet8").state_dict(), tmp_path / "w.pth")
    assert create_backbone("resnet8", weights="~/w.pth").weights_from == f"file {path}"
