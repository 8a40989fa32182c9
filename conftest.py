import pytest
import torch


@pytest.fixture(autouse=True)
def _names_for_examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
