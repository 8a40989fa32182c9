"""What many GPUs hold and exchange is what the page on scale reckons with."""

import json

import pytest
from benchmarks.scale import Size, checked


def work(rank, world, folder, negatives):
    checked(rank, Size(world, 6, 16, 1001, negatives), folder)


@pytest.mark.parametrize("negatives", [pytest.param(1.0, marks=pytest.mark.slow), 0.25])
def test_the_formulas_are_what_processes_hold_and_receive(negatives, tmp_path, in_processes):
    in_processes(work, 3, tmp_path, negatives)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    size = Size(3, 6, 16, 1001, negatives)
    assert max(held for held, _ in found) == size.held()
    assert {received for _, received in found} == {size.received()}


def test_the_table_of_the_page():
    """Ten million classes on eight GPUs, in round numbers."""
    size = Size(8, 64, 512, 10_000_000)
    assert size.held() == pytest.approx(5.13e9, rel=1e-3)
    assert size.received() == pytest.approx(2.8e6, rel=0.02)
    assert size.seconds(1.615) == pytest.approx(0.252, rel=0.01)
