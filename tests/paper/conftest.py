from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from wcdas.paper.claim import Finding, Setting

Check = Callable[..., Finding]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "paper", device="cpu")


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Check], Finding]:
    """What a check finds, as it stands; it is asked once."""
    setting = Setting(tmp_path_factory.mktemp("paper"), device="cpu")
    return cache(lambda check: check(setting))
