"""Commands on files, folders and settings that were changed at random end in order."""

import pytest
from tests.fuzz.cases import KINDS, Ground, fuzz

CASES = 30  # of each kind, the same everywhere


@pytest.fixture(scope="module")
def ground(tmp_path_factory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_case_ends_in_success_or_in_one_line(ground, kind):
    found = [fuzz(ground, kind, seed) for seed in range(CASES)]
    assert [outcome for outcome in found if outcome.wrong] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_cases_end_in_success_or_in_one_line(ground, kind):
    assert fuzz(ground, kind, 1000).wrong == ""
