"""Everything that is wrong is refused before any work: one line, exit status 2, nothing left."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "--methods is missing; expected names of `wcdas list methods`"),
        ("--methods softmax,wcdss", "unknown method 'wcdss'; did you mean 'wcdas'"),
        ("--methods softmax,", "unknown method ''"),
        ("--methods wcdas,softmax,wcdas", "--methods names 'wcdas' more than once"),
        ("--methods wcdas --seeds 0", "--seeds is 0; expected how many, 1 to 1,000"),
        ("--methods wcdas --parallel 0", "--parallel is 0; expected how many runs at a time"),
        ("--methods wcdas --workers -1", "--workers is -1; expected 0"),
        ("--methods wcdas --device gpu", "device is 'gpu'; expected auto, cpu"),
        ("--methods wcdas --log wandbb", "unknown logger 'wandbb'; did you mean 'wandb'"),
        ("--methods wcdas --log none,wandb", "none goes with no other"),
        ("--methods wcdas --set epoch=3", "unknown key 'epoch'; did you mean 'epochs'"),
        ("--methods wcdas --set lr=-1", "lr is -1.0; expected above 0"),
        ("--methods wcdas --set method=softmax", "a sweep takes --methods instead"),
        ("--methods wcdas --set seed=3", "a sweep takes --seeds instead"),
        (
            "--methods softmax,wcdas --set stages.third.lr=1",
            "unknown stage of softmax or wcdas 'third'",
        ),
        ("--methods softmax,crt --set stages.clasifier.lr=1", "did you mean 'classifier'?"),
        ("--methods softmax,ride --set options.expert=2", "option of ride 'expert'; did you mean"),
        ("--methods softmax,crt --set options.x=2", "none of softmax, crt has options"),
        ("--methods wcdas,ldam-drw --set epochs=1", "ldam-drw: stages.representation.epochs is 1"),
        ("--methods ncm,tau-norm --set stages.classifier.lr=1", "classifier.lr has no effect"),
        ("--methods wcdas,softmax --set head.init=1.0", "softmax: head: "),
        ("--methods wcdas --recipe digits", "unknown recipe 'digits'"),
        ("digit-lt --methods wcdas", "unknown dataset 'digit-lt'; did you mean 'digits-lt'"),
        ("no/folder --methods wcdas", "no/folder does not exist"),
        ("--methods wcdas --set data.imbalance=0", "data.imbalance is 0; expected"),
        ("--methods wcdas --out /proc/no/sweep", "cannot be written"),
        ("--resume", "--resume needs to know which sweep; name its folder with --out"),
        ("--resume --out nowhere", "nowhere holds no sweep; expected a sweep.toml in it"),
    ],
)
def test_slips(refused, arguments, said):
    assert said in refused("sweep", "--device", "cpu", *arguments.split())


def test_a_folder_that_is_no_sweep(command, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "run.toml").touch()
    _, _, err = command("sweep", "--methods", "softmax", "--out", tmp_path / "used")
    assert "used is not empty; go on with --resume or choose another" in err
    status, _, err = command("sweep", "--resume", "--out", tmp_path / "used")
    assert status == 2
    assert "used holds no sweep; expected a sweep.toml in it" in err
    (tmp_path / "used" / "sweep.toml").write_text("seeds = 3")
    _, _, err = command("sweep", "--resume", "--out", tmp_path / "used")
    assert "sweep.toml is damaged: sweep.toml has no" in err


def test_several_processes(refused, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "call it without torchrun" in refused("sweep", "--methods", "wcdas")


def test_help(command):
    status, out, err = command("sweep", "--help")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "Examples:\n    wcdas sweep digits-lt --methods softmax,wcdas" in out
