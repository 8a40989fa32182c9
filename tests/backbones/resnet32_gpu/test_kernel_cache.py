"""Compiled kernels are kept, and damaged ones compiled again."""

import pytest

from wcdas.backbones.resnet32_gpu.kernel import compiled

GIVEN = 'extern "C" __global__ void set(float* x) { x[0] = 1; }', "set", "80"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file that keeps the kernels of `GIVEN`, which are compiled for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        compiled(*GIVEN)
    except (OSError, RuntimeError):
        pytest.skip("needs NVRTC")
    (found,) = (tmp_path / "wcdas" / "kernels").iterdir()
    return found


def test_what_is_kept_is_not_compiled_again(file, monkeypatch):
    binary = compiled(*GIVEN)
    monkeypatch.setattr("torch.cuda._utils._nvrtc_compile", None)
    assert compiled(*GIVEN) == binary
    assert b"set" in binary


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-100], lambda b: b"", lambda b: b[:90] + b"?" + b[91:]]
)
def test_a_damaged_file_is_compiled_again_and_mended(file, damage):
    binary, whole = compiled(*GIVEN), file.read_bytes()
    file.write_bytes(damage(whole))
    assert compiled(*GIVEN) == binary
    assert file.read_bytes() == whole


def test_without_a_place_to_keep_it_a_kernel_is_compiled_all_the_same(file, monkeypatch):
    binary = compiled(*GIVEN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))  # a file is no folder
    assert compiled(*GIVEN) == binary
