"""`wcdas paper`: what is judged is kept, what is asked wrongly is refused."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wcdas import cli
from wcdas.errors import InputError, InterruptedRunError, WorkError
from wcdas.paper import CLAIMS
from wcdas.paper.claim import Claim, Finding, Setting, Table, Verdict
from wcdas.paper.folder import Result, read_result, write_result
from wcdas.paper.run import run_paper

NAMES = ["equation-51", "equation-10"]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WCDAS_DATA", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wcdas", "paper", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, *capsys.readouterr()

    return run


def test_list(command: Command) -> None:
    status, out, _ = command()
    assert status == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == list(CLAIMS)
    assert all(CLAIMS[line.split()[0]].cost in line for line in lines)
    assert not list(Path.cwd().iterdir())


def test_some(command: Command) -> None:
    status, out, _ = command(*NAMES, "--out", "here")
    assert status == 0
    assert "1/2 equation-10 holds" in out  # in the paper's order
    assert "2/2 equation-51 holds" in out
    assert "0.4233153215" in out
    assert out.endswith("here/index.html\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["theorm-4"], "unknown claim 'theorm-4'; did you mean 'theorem-4'"),
        (["theorem-4", "--mode", "fast"], "unknown mode 'fast'"),
        (["theorem-4", "--all"], "expected one or the other"),
        (["theorem-4", "--resume"], "name it with --out"),
        (["theorem-4", "--resume", "--out", "nothing"], "holds no paper"),
    ],
)
def test_refused(command: Command, arguments: list[str], words: str) -> None:
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("wcdas: ")
    assert err.count("\n") == 1
    assert words in err
    assert not list(Path.cwd().rglob("*"))


def test_folder_in_use_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("work")
    status, _, err = command("equation-51", "--out", "mine")
    assert status == 2
    assert "mine is not empty; choose another" in err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_kept_unless_inputs_change(tmp_path: Path) -> None:
    out = tmp_path / "paper"
    run_paper(NAMES, out=out)
    paths = {name: out / "results" / f"{name}.json" for name in NAMES}
    stored = json.loads(paths["equation-10"].read_text())
    stored["fingerprint"] = "of other sources"
    paths["equation-10"].write_text(json.dumps(stored))
    before = paths["equation-51"].stat().st_mtime_ns
    done = run_paper(out=out, resume=True)
    assert paths["equation-51"].stat().st_mtime_ns == before
    again = json.loads(paths["equation-10"].read_text())
    assert again["fingerprint"] != stored["fingerprint"]
    assert set(done.results) == set(NAMES)
    with pytest.raises(InputError, match="begun with --mode quick"):
        run_paper(out=out, resume=True, mode="real")


def test_resume_adds_claims(tmp_path: Path) -> None:
    out = tmp_path / "paper"
    run_paper(NAMES, out=out)
    done = run_paper(["equation-32"], out=out, resume=True)
    assert list(done.results) == ["equation-10", "equation-32", "equation-51"]


def with_check(name: str, check: Callable[[Setting], Finding]) -> Claim:
    return Claim(name, "nowhere", "Something.", "a second", check)


def test_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(setting: Setting) -> Finding:
        raise KeyboardInterrupt

    out = tmp_path / "paper"
    with monkeypatch.context() as patch:
        patch.setitem(CLAIMS, "equation-32", with_check("equation-32", stop))
        with pytest.raises(InterruptedRunError, match=r"stopped at equation-32; .* --resume"):
            run_paper([*NAMES, "equation-32"], out=out)
    page = (out / "index.html").read_text()
    assert 'id="equation-10"' in page
    assert 'id="equation-51"' not in page
    done = run_paper(out=out, resume=True)
    assert len(done.results) == 3


def test_one_failure_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(setting: Setting) -> Finding:
        raise WorkError("the disk is full")

    monkeypatch.setitem(CLAIMS, "equation-10", with_check("equation-10", fail))
    done = run_paper(NAMES, out=tmp_path / "paper")
    assert list(done.results) == ["equation-51"]
    assert "the disk is full" in done.page.read_text()
    with pytest.raises(WorkError, match="1 of 2 claims could not be judged: equation-10"):
        done.raise_failures()


def test_result_survives_the_disk(setting: Setting) -> None:
    setting.figures.mkdir(parents=True)
    figure = setting.figures / "x.svg"
    figure.write_text("<svg/>")
    table = Table("t", ("a", "b"), (("1", ""),), "note")
    finding = Finding(Verdict.CORRECTED, "Found.", {"ρ": 0.5}, (figure,), (table,))
    write_result(setting, "x", Result(finding, 1.5))
    assert read_result(setting, "x") == Result(finding, 1.5)
    figure.unlink()
    assert read_result(setting, "x") is None  # a figure that is gone is drawn again


def test_missing_data_is_looked_for_again(setting: Setting) -> None:
    write_result(setting, "x", Result(Finding(Verdict.NEEDS_DATA, "No data."), 0.1))
    assert read_result(setting, "x") is None
