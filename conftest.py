import pytest
import torch

torch.set_num_threads(1)  # many small operations are faster so, and workers share the cores


@pytest.fixture(autouse=True)
def _names_for_examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
