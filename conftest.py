import signal
from importlib.util import find_spec

import pytest
import torch

if find_spec("triton") is None:  # where PyTorch brings none, its kernels cannot be looked through
    collect_ignore = ["src/wcdas/heads/functional/fused_kernels.py"]

# What a test starts is to hear signals, also where nohup or a shell's & had the tests ignore them.
for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)  # many small operations are faster so, and workers share the cores


@pytest.fixture(autouse=True)
def _names_for_examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
