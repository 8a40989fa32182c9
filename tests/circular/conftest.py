import pytest
from torch.distributions import Distribution


@pytest.fixture(autouse=True)
def _validated_arguments() -> None:
    """torch.compile, once used in a process, switches the validation of all distributions off."""
    Distribution.set_default_validate_args(True)
