"""Tests of the kernels without a GPU, each file in a process of its own.

Triton decides when it is imported whether its kernels are compiled or interpreted, and other tests
want the former.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the tests run on the GPU")
FILES = ["test_convolution_kernels.py", "test_residual_network.py"]


@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="the tests run as they are")
@pytest.mark.parametrize("name", FILES)
def test_in_the_interpreter(name):
    pytest_alone = ["-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *pytest_alone, str(Path(__file__).with_name(name))],
        env={k: v for k, v in environment.items() if not k.startswith("PYTEST_")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


COMPILE = Path(__file__).with_name("compile_for_hopper.py")


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_every_kernel_compiles_for_a_gpu_that_is_not_there(precision):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(COMPILE), precision], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "_weight_gradient_kernel" in done.stdout
