import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from wcdas.paper import CLAIMS, Finding, Setting

Found = Callable[[str], Finding]
Changed = Callable[..., Finding]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "paper", device="cpu")


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What the check of a claim finds, as it stands; it is asked once."""
    setting = Setting(tmp_path_factory.mktemp("paper"), device="cpu")
    return cache(lambda name: CLAIMS[name].check(setting))


@pytest.fixture
def changed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> Changed:
    """What the check of a claim finds with other formulas or numbers in its module."""

    def check(name: str, **others: object) -> Finding:
        module = sys.modules[CLAIMS[name].check.__module__]
        with monkeypatch.context() as patch:
            for key, value in others.items():
                patch.setattr(module, key, value)
            return CLAIMS[name].check(setting)

    return check
