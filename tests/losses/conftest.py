import pytest
import torch
from torch import Tensor

CLASS_COUNTS = [500, 120, 40, 9, 2]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def class_counts() -> list[int]:
    return CLASS_COUNTS


@pytest.fixture
def logits() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return 3 * torch.randn(8, len(CLASS_COUNTS), generator=generator, dtype=torch.float64)


@pytest.fixture
def labels() -> Tensor:
    return torch.tensor([0, 1, 2, 3, 4, 4, 0, 2])


@pytest.fixture
def soft_targets() -> Tensor:
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(8, len(CLASS_COUNTS), generator=generator, dtype=torch.float64)
    return rows.softmax(dim=1)
