"""Runs of a sweep are threads on a GPU, and each draws its figures."""

from concurrent.futures import ThreadPoolExecutor

import matplotlib as mpl

from wcdas.report import draw


def test_figures_of_several_threads_are_those_of_one(tmp_path):
    def paint(figure):
        figure.add_subplot().plot([0, 1], [0, 1])

    alone = draw(tmp_path / "alone", "line", (2, 2), paint).read_bytes()
    before = dict(mpl.rcParams)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda i: draw(tmp_path / str(i), "line", (2, 2), paint), range(12)))
    assert all(path.read_bytes() == alone for path in paths)
    assert dict(mpl.rcParams) == before
