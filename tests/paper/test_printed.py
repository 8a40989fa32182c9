"""The typed numbers are those of the paper's text."""

import math
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from wcdas.data import groups
from wcdas.paper.runs import read_toml
from wcdas.paper.tables import Number, read_table

SHARED = next(
    (p / "shared" for p in Path(__file__).resolve().parents if (p / "shared" / "paper").is_dir()),
    Path("absent"),
)
PAPER = SHARED / "paper"
needs_paper = pytest.mark.skipif(not PAPER.is_dir(), reason="the paper's text is not here")
TABULAR = re.compile(r"\\begin\{(tabularx?)\}(.*?)\\end\{\1\}", re.DOTALL)


def rows_in_the_text(number: int) -> list[tuple[str, list[float], list[float]]]:
    """Label, numbers and deviations of every row of a table with numbers in it."""
    (text,) = (path.read_text(encoding="utf-8") for path in PAPER.glob("*.txt"))
    tabular = TABULAR.findall(text)[number - 1][1]
    found = []
    for line in tabular.split(r"\\"):
        line = re.sub(r"\\cite\{.*?\}|\\hline|\\textbf|\\multicolumn\{.*?\}\{.*?\}", "", line)
        label, *cells = (cell.strip() for cell in line.split("&"))
        deviations = [re.search(r"\\std ?\{(.*?)\}", cell) for cell in cells]
        values = [re.sub(r"\\std ?\{.*?\}|[{}]", "", cell).strip() for cell in cells]
        if values and all(re.fullmatch(r"-|\d+\.\d", value) for value in values):
            numbers = [math.nan if value == "-" else float(value) for value in values]
            found.append((label, numbers, [float(d[1]) for d in deviations if d]))
    return found


@needs_paper
@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 7, 8])
def test_every_row_is_that_of_the_text(number):
    rows = rows_in_the_text(number)
    typed = read_table(f"table-{number}").rows
    numbers = [value for row in typed for value in row.printed]
    if number == 1:  # both halves of a row are rows of their own, and angular softmax has one half
        order = [typed[i] for i in (0, 1, 3, 2, 4)]
        numbers = [value for row in order for value in row.printed]
        numbers[4:4] = [math.nan] * 4
    text = [value for _, values, _ in rows for value in values]
    assert len(text) >= 16
    assert numbers == pytest.approx(text, nan_ok=True, abs=1e-9)
    deviations = [d for _, _, row in rows for d in row]
    assert [d for row in typed for d in row.deviation] == pytest.approx(deviations)
    assert len(deviations) == (60 if number == 3 else 0)


@needs_paper
@pytest.mark.parametrize("number", [2, 3, 4, 6, 7, 8])
def test_every_row_has_the_label_of_the_text(number):
    def plain(label: str) -> str:
        label = label.replace(r"$\tau$", "τ").replace("Xa.", "Xavier").replace("(ours)", "")
        label = re.sub(r"\(Eq\. \\ref\{.*?\}\)|\\blue|[{}]", "", label)
        return re.sub(r"\s+", " ", label).strip()

    labels = [plain(label) for label, _, _ in rows_in_the_text(number)]
    assert labels == [row.label for row in read_table(f"table-{number}").rows]


@needs_paper
def test_hyper_parameters_are_those_of_the_text():
    (text,) = (path.read_text(encoding="utf-8") for path in PAPER.glob("*.txt"))
    tabular = TABULAR.findall(text)[4][1]
    for row in read_toml("tables/table-5.toml").values():
        (line,) = (line for line in tabular.split(r"\\") if row["label"] in line)
        cells = [re.sub(r"\\cite\{.*?\}|\\hline", "", cell).strip() for cell in line.split("&")]
        epochs, rates, backbone, init, scale = cells[1:]
        assert int(epochs) == row["epochs"]
        assert [float(r) for r in rates.split("/")] == [row["representation"], row["classifier"]]
        assert backbone == row["backbone"]
        assert float(init) == row["init"]
        assert scale == str(row["scale"])


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the class counts are not here")
@pytest.mark.parametrize(("data", "folder"), [("imagenet-lt", "imagenet_lt"), ("inat2018",) * 2])
def test_sizes_of_the_groups_are_those_of_the_data(data, folder):
    counts = (SHARED / "data" / folder / "train_counts.txt").read_text().split()
    masks = groups(torch.tensor([int(count) for count in counts]))
    sizes = {name: int(mask.sum()) for name, mask in masks.items()}
    assert read_toml("tables/groups.toml")[data] == sizes


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 7, 8])
def test_rows_are_as_long_as_their_columns(number):
    table = read_table(f"table-{number}")
    assert all(len(row.printed) == len(table.columns) for row in table.rows)
    assert len({row.label for row in table.rows}) == len(table.rows)
    assert len({part.label for part in table.parts}) == len(table.parts)


def test_clearly_below_needs_two_standard_errors():
    # Two standard errors of the difference: 2·√(0.3² + 0.4²)/√4 = 0.5.
    low, high = Number(50.0, 0.3, 4), Number(50.5, 0.4, 4)
    assert not low.clearly_below(high)
    assert low.clearly_below(Number(50.51, 0.4, 4))
    assert not high.clearly_below(low)
    for lower, higher in pairwise([Number(1.0), Number(1.1), Number(1.2)]):
        assert lower.clearly_below(higher)
        assert not higher.clearly_below(lower)
