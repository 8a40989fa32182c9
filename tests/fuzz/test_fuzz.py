"""Commands on files, folders and settings that were changed at random end in order, and a server
answers requests that were."""

import pytest
from tests.fuzz import served
from tests.fuzz.cases import KINDS, Ground, fuzz

CASES = 30  # of each kind, the same everywhere
REQUESTS = 300


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


def ask(ground, seeds):
    """What goes wrong while a server is asked, and where it ends."""
    with served.serving(ground.root / "run") as server:
        found = {seed: served.fuzz(server, seed).wrong for seed in seeds}
        found["end"] = server.end()
    return {case: wrong for case, wrong in found.items() if wrong}


@pytest.mark.slow
def test_every_request_is_answered_or_is_no_http(ground):
    assert ask(ground, range(REQUESTS)) == {}


def test_a_few_requests_are_answered_or_are_no_http(ground):
    assert ask(ground, range(1000, 1020)) == {}
