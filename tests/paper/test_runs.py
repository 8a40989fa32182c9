"""Sweeps behind the tables: trained once, shared, resumed, shown."""

import shutil
import tomllib
from dataclasses import replace

import pytest

import wcdas
from wcdas.paper import CLAIMS, Setting, Verdict
from wcdas.paper.folder import begin
from wcdas.paper.runs import finished_runs, protocol, sweep_folder, train
from wcdas.paper.tables import (
    Cell,
    Part,
    PrintedTable,
    Row,
    check_table,
    measure,
    of_cell,
    of_stand_in,
    read_table,
)
from wcdas.sweeps import keep_results, read_results

pytestmark = pytest.mark.slow

MODEL = "model.safetensors"

ONE_EPOCH = {
    "imbalance": 100,
    "settings": {"stages.representation.epochs": 1, "stages.classifier.epochs": 1},
}
TABLE = PrintedTable(
    "table-0",
    {"best": "WCDAS"},
    (Part("CIFAR", "cifar100-lt", ["few", "all"], 100, digits=ONE_EPOCH),),
    (
        Row("cRT", "crt", [20.0, 50.0]),
        Row("Focal", "focal", [10.0, 40.0]),
        Row("WCDAS", "wcdas", [30.0, 60.0]),
    ),
)


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return Setting(tmp_path_factory.mktemp("paper"), device="cpu")


def stand_in(setting, table):
    return measure(setting, table, of_stand_in)[0]


@pytest.fixture(scope="module")
def digits(setting):
    return stand_in(setting, TABLE)


def runs(setting, row):
    return finished_runs(setting, of_stand_in(row, TABLE.parts[0]), row.method)


def test_cells_are_the_metrics_of_the_runs(setting, digits):
    assert len(digits) == 6
    for row in TABLE.rows:
        (run,) = runs(setting, row)
        metrics = wcdas.Run(run).metrics
        assert digits[Cell(row.label, "CIFAR", "all")].mean == 100 * metrics["top1"]
        assert digits[Cell(row.label, "CIFAR", "few")].mean == 100 * metrics["few"]


@pytest.mark.usefixtures("digits")
def test_runs_follow_the_quick_recipe(setting):
    crt, focal, wcdas_row = (
        tomllib.loads((runs(setting, row)[0] / "run.toml").read_text()) for row in TABLE.rows
    )
    assert crt["backbone"]["name"] == "resnet8"
    assert crt["data"]["imbalance"] == 100
    assert list(focal["stages"]) == ["representation"]  # a recipe for two stages adds none
    assert wcdas_row["head"]["init"] == 0.0
    assert focal["evaluate_every"] == 1000


@pytest.mark.usefixtures("digits")
def test_what_is_finished_is_not_trained_again(setting):
    files = [run / MODEL for row in TABLE.rows for run in runs(setting, row)]
    before = [file.stat().st_mtime_ns for file in files]
    table = replace(TABLE, name="another", rows=TABLE.rows[::-1])
    again = stand_in(setting, table)
    assert again == stand_in(setting, TABLE)
    assert [file.stat().st_mtime_ns for file in files] == before


@pytest.mark.usefixtures("digits")
def test_a_missing_run_alone_is_done(setting):
    crt, focal, _ = (runs(setting, row)[0] for row in TABLE.rows)
    kept, before = (crt / MODEL).stat().st_mtime_ns, wcdas.Run(focal).metrics
    shutil.rmtree(focal)
    stand_in(setting, TABLE)
    assert (crt / MODEL).stat().st_mtime_ns == kept
    assert wcdas.Run(focal).metrics == before  # a CPU with one thread gives the same bits


def test_numbers_on_the_papers_data_are_shown_in_quick_mode(setting, digits, tmp_path):
    """A finished sweep under the name of a protocol is shown, whoever trained it."""
    other = Setting(tmp_path, device="cpu")
    row, part = TABLE.rows[0], TABLE.parts[0]
    source = runs(setting, row)[0]
    for seed in range(3):
        goal = sweep_folder(other, of_cell(row, part)) / f"crt-s{seed}"
        shutil.copytree(source, goal)
    ours, _ = measure(other, TABLE, of_cell)
    assert set(ours) == {Cell("cRT", "CIFAR", "few"), Cell("cRT", "CIFAR", "all")}
    number = ours[Cell("cRT", "CIFAR", "all")]
    assert (number.seeds, number.deviation) == (3, 0.0)
    assert number.mean == pytest.approx(digits[Cell("cRT", "CIFAR", "all")].mean)


def test_quick_mode_leaves_the_papers_data_alone(tmp_path):
    setting = Setting(tmp_path, device="cpu")
    assert train(setting, [(protocol("wcdas", "cifar100-lt", 100), "wcdas")]) == {}
    assert list(tmp_path.iterdir()) == []


def test_real_mode_says_which_images_are_missing(tmp_path):
    setting = Setting(tmp_path / "out", "real", data_root=tmp_path, device="cpu")
    finding = CLAIMS["table-1"].check(setting)
    assert finding.verdict == Verdict.NEEDS_DATA
    assert "imagenet-lt is not in" in finding.tables[0].note
    assert all(cell == "" for row in finding.tables[0].rows for cell in row[2::3])


def test_protocols_of_the_paper():
    imagenet, inaturalist = (
        protocol("wcdas", name, None).settings for name in ("imagenet-lt", "inat2018")
    )
    assert dict(imagenet) == {"head.init": -1.0}
    assert dict(inaturalist) == {"head.init": 1.0, "head.scale": 250.0}
    assert protocol("focal", "imagenet-lt", None).settings == ()
    assert protocol("wcdas", "cifar100-lt", 100).seeds == 3
    assert protocol("wcdas", "cifar100-lt", 100).recipe in wcdas.run.recipes.list_recipes()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 7, 8])
def test_every_method_of_a_table_exists_and_one_of_each_sweep_has_two_stages(number):
    """A recipe's classifier stage would be added to a sweep of one-stage methods alone."""
    table = read_table(f"table-{number}")
    sweeps: dict[object, list[str]] = {}
    for row in table.rows:
        for part in table.parts:
            for one in (of_cell(row, part), of_stand_in(row, part)):
                if one is not None:
                    sweeps.setdefault(one, []).append(row.method)
    for methods in sweeps.values():
        assert any("classifier" in wcdas.METHODS[method].defaults["stages"] for method in methods)


def test_tables_share_their_sweeps():
    """WCDAS with the class-balanced sampler is one run in Tables 1, 2, 4, 7 and 8."""
    places = set()
    for number, label in [
        (1, "WCDAS, class-wise ρ"),
        (2, "0"),
        (4, "WCDAS (class-balanced)"),
        (7, "Class balanced sampling"),
        (8, "WCDAS (class-balanced)"),
    ]:
        table = read_table(f"table-{number}")
        (row,) = (row for row in table.rows if row.label == label)
        places.add(of_stand_in(row, table.parts[0]))
    assert len(places) == 1


def test_a_changed_recipe_is_refused_not_mixed(tmp_path):
    """A folder that was begun under another protocol is not gone on with."""
    setting = Setting(tmp_path, device="cpu")
    one = of_stand_in(TABLE.rows[0], TABLE.parts[0])
    wcdas.sweep(
        "digits-lt", ["crt"], 1, settings={"epochs": 1, "backbone.name": "resnet8"},
        out=sweep_folder(setting, one), device="cpu", report=False,
    )  # fmt: skip
    (sweep_folder(setting, one) / "crt-s0" / MODEL).unlink()
    with pytest.raises(wcdas.InputError, match="started otherwise"):
        train(setting, [(one, "crt")])


def test_stand_in_numbers_are_in_a_table_of_their_own(setting):
    table = read_table("table-7")
    parts = tuple(replace(part, digits=ONE_EPOCH) for part in table.parts)
    finding = check_table(setting, replace(table, parts=parts))
    assert finding.verdict == Verdict.NEEDS_DATA  # digits decide nothing
    ours = finding.tables[-1]
    assert ours.title.startswith("digits-lt")
    assert all(all(row) for row in ours.rows)


def test_quick_mode_shows_the_numbers_of_a_real_mode(setting, digits, tmp_path):
    row, part = TABLE.rows[0], TABLE.parts[0]
    real = Setting(tmp_path / "real", "real", device="cpu")
    shutil.copytree(runs(setting, row)[0], sweep_folder(real, of_cell(row, part)) / "crt-s0")
    shown, _ = measure(replace(setting, measured=real.out), TABLE, of_cell)
    assert shown[Cell("cRT", "CIFAR", "all")].mean == digits[Cell("cRT", "CIFAR", "all")].mean
    assert shown[Cell("cRT", "CIFAR", "all")].seeds == 1
    assert measure(setting, TABLE, of_cell)[0] == {}
    with pytest.raises(wcdas.InputError, match="holds no paper"):
        begin(["table-3"], replace(setting, measured=tmp_path / "elsewhere"), resume=False)


def test_results_of_the_sweeps_stand_for_their_runs(setting, digits, tmp_path):
    kept = keep_results(sorted((setting.out / "sweeps").iterdir()), tmp_path / "results")
    assert kept.left_out == []
    lines = read_results(tmp_path / "results")
    other = Setting(tmp_path / "other", "real", device="cpu", results=lines)  # trains no digits
    found = stand_in(other, TABLE)
    assert found.keys() == digits.keys()
    for cell, number in digits.items():
        assert found[cell].mean == pytest.approx(number.mean, abs=1e-3)
