"""The examples in the docstrings give what they print."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import wcdas.circular

MODULES = [module.name for module in pkgutil.iter_modules(wcdas.circular.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(f"wcdas.circular.{name}")
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0
