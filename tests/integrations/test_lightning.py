"""The Lightning example trains for real."""

import runpy
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning_digits.py"


@pytest.mark.filterwarnings("ignore")
def test_one_epoch_learns(capsys):
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    accuracy = runpy.run_path(str(EXAMPLE))["main"](epochs=1)
    assert accuracy > 0.25  # 0.40 to 0.55 over ten seeds; chance is 0.1
    assert f"accuracy after epoch 1: {100 * accuracy:.1f} %" in capsys.readouterr().out


def test_the_margin_of_the_module_is_that_of_the_head():
    """`forward` needs no labels and gives the logits of the head."""
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    model = runpy.run_path(str(EXAMPLE))["Digits"](torch.tensor([90, 9, 1]))
    images = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(model(images), model.head(model.backbone(images)))
    assert model.log_prior.exp().tolist() == pytest.approx([0.9, 0.09, 0.01])
