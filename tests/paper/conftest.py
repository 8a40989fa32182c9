from pathlib import Path

import pytest

from wcdas.paper.claim import Setting


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "paper", device="cpu")
