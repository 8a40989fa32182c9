"""Logs of runs that learn stay without a word; of those that do not, the line names the remedy."""

import re
import shutil
import signal
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

import wcdas
from wcdas.errors import InterruptedRunError
from wcdas.run.diagnosis import Chance, TrainedScale, Watched, symptom, warnings_in
from wcdas.run.folder import RunFolder
from wcdas.run.recipes import parse_settings

# The first stage of digits-lt, its images as they come and classes drawn equally often.
STAGE = Watched("representation", 60, steps=9, images=288, warmup=2, lr=0.1, lr_key="lr")
AS_THEY_COME = Chance(0.1, 0.358, 1.758, 2.303)
BALANCED = Chance(0.1, 0.1, 2.303, 2.303)
OWN_LOSS = Chance(0.1, 0.358)

# Real runs: loss and training accuracy in % of the first epochs.
SOFTMAX = "1.98/36 1.24/62 .84/72 .721/75 .534/81 .463/85 .32/90 .24/93"
WCDAS = (
    "2.3/7 2.27/36 2.19/36 2.13/37 2/56 1.71/57 1.39/62 1.1/71 1.06/70 .957/74 .902/73 .863/74 "
    ".813/75 .82/75 .698/82 .57/84 .499/86 .539/86 .439/88 .43/88 .368/91 .466/88 .456/89 .41/90"
)
WCDAS_SLOW = (
    "2.306/1 2.304/3 2.299/22 2.294/33 2.286/36 2.277/37 2.268/35 2.25/36 2.24/36 2.21/37 2.2/35 "
    "2.18/37 2.17/36 2.16/37 2.15/35 2.14/36 2.12/37 2.11/37 2.09/37 2.07/45 2.05/50 2.03/54 "
    "2/57 1.96/57"
)
WCDAS_PRIOR = (
    "1.75/4 1.69/19 1.57/33 1.36/42 1.16/35 1.04/57 1/39 .937/58 1.2/51 .784/42 .781/55 .697/75 "
    ".713/43 .707/55 .522/74 .704/69 .322/78 .573/61 .861/65 .703/56 .776/66 .693/51 .864/69 .61/35"
)
PACO = (
    "12.9/19 9.81/31 9.13/11 8.53/25 8.05/9 7.71/10 7.44/18 7.26/13 7.17/16 7.07/21 6.97/22 "
    "6.85/13 6.77/24 6.72/38 6.57/32 6.57/23 6.56/28 6.48/31 6.42/40 6.39/34 6.31/44 6.31/52"
)
HYBRID = (
    "4.09/1 3.88/2 3.77/1 3.77/3 3.72/5 3.61/13 3.59/22 3.58/52 3.54/64 3.56/69 3.47/71 3.45/75 "
    "3.31/72 3.37/71 3.35/71 3.29/73 3.31/74 3.15/75 3.21/84 3.17/86 2.98/83 3.09/88 2.92/87"
)
TINY_RATE = " ".join(["2.54/1", "2.55/1", "2.53/1", "2.57/1", "2.55/2", "2.56/0"] * 5)
EXPLODED = (
    "5.13/37 5.16/39 5.65e4/23 2.26e12/25 2.25e19/22 3.5e21/26 1.45e12/18 1.27e11/16 4.16e6/21 "
    "7.52e13/21 1.42e8/30 8.45e8/16 26.5/28 5.96e13/24 6.1e7/27 30.7/12 17.6/28 7.64/14 7.2/25 "
    "4.86/28 3.16/22 1.03e14/32 1.5e14/15 7.91/26 7.32/24 4.96/24"
)
PACO_TINY_RATE = " ".join(["14.1/10", "13.3/12", "13.1/10", "13/11", *["12.9/10", "12.8/12"] * 12])
FREQUENCIES_ALONE = " ".join(["1.77/2", "1.74/19", "1.77/21", *["1.76/36", "1.74/37"] * 12])


def log(text, **facts):
    pairs = [pair.split("/") for pair in text.split()]
    return [{"loss": float(a), "train_accuracy": float(b) / 100, **facts} for a, b in pairs]


def scale(start, least=1.0):
    return TrainedScale(start, least, "--set head.start=auto")


def first(stage, chance, lines):
    """The epoch that something is said in, and what."""
    for epoch in range(1, len(lines) + 1):
        if found := symptom(stage, chance, lines[:epoch]):
            return epoch, *found
    return None


@pytest.mark.parametrize(
    ("chance", "text"),
    [
        (AS_THEY_COME, SOFTMAX),
        (AS_THEY_COME, WCDAS),
        (AS_THEY_COME, WCDAS_SLOW),
        (AS_THEY_COME, WCDAS_PRIOR),
        (OWN_LOSS, PACO),
        (OWN_LOSS, HYBRID),
    ],
)
@pytest.mark.parametrize("steps", [9, 2_000])
def test_runs_that_learn(chance, text, steps):
    lines = log(text)
    assert first(replace(STAGE, steps=steps), chance, lines) is None


@pytest.mark.parametrize("start", [BALANCED, OWN_LOSS])
def test_a_classifier_stage_that_begins_well(start):
    assert first(replace(STAGE, warmup=0, epochs=20), start, log(".8/70 " * 20)) is None


@pytest.mark.parametrize(
    ("chance", "text", "lr", "remedy"),
    [
        (AS_THEY_COME, TINY_RATE, 1e-6, "take a larger rate, --set lr=0.01"),
        (AS_THEY_COME, EXPLODED, 10.0, "up at 3.5e+21: take a smaller rate, --set lr=0.1"),
        (AS_THEY_COME, EXPLODED, 0.5, "up at 3.5e+21: take a smaller rate, --set lr=0.05"),
        (AS_THEY_COME, FREQUENCIES_ALONE, 1e3, "take a smaller rate, --set lr=0.1"),
        (AS_THEY_COME, FREQUENCIES_ALONE, 0.1, "--set lr=1 or lr=0.01; if neither learns"),
        (OWN_LOSS, PACO_TINY_RATE, 1e-6, "take a larger rate, --set lr=0.01"),
    ],
)
def test_runs_that_do_not(chance, text, lr, remedy):
    epoch, name, said = first(replace(STAGE, lr=lr), chance, log(text))
    assert name == "chance"
    assert 25 <= epoch < 28  # 200 steps after the warm-up, and no epoch that looks better by noise
    assert said.startswith(
        f"stage representation, epoch {epoch} of 60: nothing is learnt yet (loss "
    )
    assert remedy in said
    assert "\n" not in said
    settings = re.findall(r"([\w.]+)=([\d.e+-]+)", said.partition("--set ")[2])
    assert settings
    assert all(float(value) > 0 for _, value in settings)


def test_the_numbers_are_those_of_the_last_epoch_and_of_chance():
    _, _, said = first(replace(STAGE, lr=1e-6), AS_THEY_COME, log("2.54/1 " * 30))
    told = "(loss 2.54, training accuracy 1.0 %; class frequencies alone give 1.758 and 35.8 %)"
    assert told in said
    _, _, said = first(replace(STAGE, lr=1e-6), OWN_LOSS, log(PACO_TINY_RATE))
    assert "class frequencies alone give 35.8 %)" in said


@pytest.mark.parametrize(
    ("change", "epochs", "speaks"),
    [
        ({"epochs": 2, "warmup": 0}, 2, False),
        ({"epochs": 3, "warmup": 0, "steps": 9}, 3, False),  # 27 steps in all
        ({"epochs": 3, "warmup": 0, "steps": 10}, 3, True),  # it ends so
        ({"epochs": 4, "warmup": 0, "steps": 10}, 3, False),  # it goes on
        ({"epochs": 30, "warmup": 28, "steps": 999}, 30, False),
        ({"epochs": 31, "warmup": 28, "steps": 999}, 31, True),
        ({"epochs": 60, "warmup": 0, "steps": 67}, 3, True),
        ({"epochs": 60, "warmup": 0, "steps": 66}, 3, False),  # 198 steps
        ({"epochs": 200, "warmup": 0, "steps": 999}, 9, False),
        ({"epochs": 200, "warmup": 0, "steps": 999}, 10, True),
    ],
)
def test_when_it_is_sure(change, epochs, speaks):
    found = symptom(replace(STAGE, **change), AS_THEY_COME, log("2.55/1 " * epochs))
    assert (found is not None) == speaks


def test_a_loss_that_fell_and_rose_again():
    lines = log("2.3/10 1.5/50 1.2/60 1.9/30 " + "2.3/36 " * 25)
    _, _, said = first(STAGE, AS_THEY_COME, lines)
    assert "the loss has been down at 1.2: take a smaller rate, --set lr=0.01" in said


def test_a_loss_that_still_falls_is_given_the_stage_to_its_end():
    losses = [2.3 * 0.992**i for i in range(30)]
    lines = [{"loss": loss, "train_accuracy": 0.36} for loss in losses]
    assert first(replace(STAGE, epochs=31), AS_THEY_COME, lines) is None
    epoch, _, said = first(replace(STAGE, epochs=30), AS_THEY_COME, lines)
    assert epoch == 30
    told = "the loss still falls: train longer, --set stages.representation.epochs=60"
    assert said.endswith(told)


def test_an_own_loss_that_falls_by_itself_is_seen_at_the_end():
    falls = [{"loss": 4 - i / 20, "train_accuracy": 0.01} for i in range(60)]
    epoch, _, said = first(replace(STAGE, lr=1e-6), OWN_LOSS, falls)
    assert epoch == 60
    assert "take a larger rate" in said
    some = [line | {"train_accuracy": 0.3} for line in falls]  # below 35.8 %, but no guess
    assert first(replace(STAGE, lr=1e-6), OWN_LOSS, some) is None


def test_an_own_loss_that_ends_while_it_falls():
    """Six epochs of PaCo on CIFAR-100-LT, which then knew 7.6 % of the test images."""
    lines = log("14.3/3.5 7.95/1.4 6.8/1.4 6.54/2.9 6.42/3.6 6.27/4.5")
    short = replace(STAGE, epochs=6, steps=84, images=10_752, warmup=0, lr=0.2)
    assert first(short, Chance(0.01, 0.046), lines) is None


def test_a_loss_that_stays_where_equal_logits_are():
    """200 classes: accuracy is above chance, yet every class has nearly the same probability."""
    chance = Chance(0.005, 0.023, 4.69, 5.298)
    stage = replace(STAGE, epochs=20, steps=133, images=8_512, warmup=0, lr=0.01, scale=scale(160))
    lines = log("5.298/3 5.296/6 5.294/8 5.291/9 5.288/10 5.286/11", scale=1.7)
    epoch, name, said = first(stage, chance, lines)
    assert (epoch, name) == (3, "chance")
    assert (
        "next to nothing is learnt yet (loss 5.294, training accuracy 8.0 %; equal logits" in said
    )
    assert "--set head.start=auto" in said
    assert first(stage, chance, log("5.298/3 5.2/6 5.1/8 5/9 4.9/10 4.8/11", scale=1.7)) is None
    assert first(stage, chance, log("5.298/3 5.296/60 " + "5.294/70 " * 9, scale=1.7)) is None


def test_a_small_scale_is_named():
    stage = replace(STAGE, lr=0.01, scale=scale(50))
    _, _, said = first(stage, AS_THEY_COME, log("2.3/36 " * 30, scale=1.69))
    assert "s = 1.69, is small: start it where the head learns, --set head.start=auto" in said
    _, _, said = first(stage, AS_THEY_COME, log("2.3/36 " * 30, scale=40.0))
    assert "head.start" not in said


def test_accuracy_that_is_not_counted():
    """Above 2,000 classes the loss alone speaks, where it has a level."""
    many = Chance(1 / 8_142, 0.002, 8.2, 9.005)
    lines = [{"loss": 9.0, "train_accuracy": None}] * 4
    stage = replace(STAGE, steps=999, warmup=0)
    assert "(loss 9; class frequencies alone give 8.2)" in first(stage, many, lines)[2]
    assert first(stage, replace(many, loss=None, untrained=None), lines) is None
    assert first(stage, many, [{"loss": 8.0, "train_accuracy": None}] * 4) is None


@pytest.mark.parametrize(
    ("facts", "accuracy", "name"),
    [
        ({"rho_at_bounds": {"low": 0.3, "high": 0.0}}, 95, "rho"),
        ({"rho_at_bounds": {"low": 0.1, "high": 0.0}}, 42, None),
        ({"rho_at_bounds": {"low": 0.0, "high": 0.3}}, 42, "rho"),
        ({"rho_at_bounds": {"low": 0.0, "high": 1.0}}, 95, None),  # narrow, and right
        ({"scale": 1.002}, 42, "scale"),
        ({"scale": 1.002}, 95, None),
        ({"scale": 1.69}, 42, None),
    ],
)
def test_parameters_at_a_bound(facts, accuracy, name):
    lines = log(f"1.2/{accuracy} " * 30, **{"scale": 9.0} | facts)
    found = first(replace(STAGE, scale=scale(50)), AS_THEY_COME, lines)
    assert (found and found[1]) == name
    if found:
        assert "take a smaller rate, --set lr=0.01" in found[2]


def test_one_line_for_one_run():
    """What is at chance is not told a second time by its parameters."""
    facts = {"scale": 1.0, "rho_at_bounds": {"low": 1.0, "high": 0.0}}
    lines = log("2.3/36 " * 30, **facts)
    assert first(replace(STAGE, scale=scale(50)), AS_THEY_COME, lines)[1] == "chance"


HOPELESS = {"lr": 1e-6, "batch_size": 8, "stages.representation.warmup": 0.0}


@pytest.fixture(scope="module")
def hopeless(tmp_path_factory):
    """A real run that learns nothing, and what the terminal showed of it."""
    said = StringIO()
    run = wcdas.train(
        "digits-lt",
        "softmax",
        settings=HOPELESS | {"epochs": 8, "backbone.name": "resnet8"},
        out=tmp_path_factory.mktemp("runs") / "hopeless",
        device="cpu",
        console=Console(file=said, width=1_000),
    )
    return run, said.getvalue()


def test_a_real_run_says_so_in_terminal_log_and_page(hopeless):
    run, terminal = hopeless
    lines = RunFolder(run.path).read_log()
    (text,) = warnings_in(lines)
    spoke = next(line for line in lines if "warnings" in line)
    assert spoke["epoch"] >= 6  # of 39 steps
    assert spoke["warnings"] == {"chance": text}
    assert text.startswith(f"stage representation, epoch {spoke['epoch']} of 8: nothing is learnt")
    assert "class frequencies alone give 1.758 and 35.8 %" in text
    assert terminal.count("warning:") == terminal.count(f"warning: {text}\n") == 1
    page = (run.path / "report.html").read_text("utf-8")
    assert page.count(text) == 1
    assert page.index('<aside class="warning"') < page.index(text) < page.index('id="result"')
    assert "Do first what the warning above says" in page
    assert "Put the class prior in the loss" not in page


def test_a_page_of_several_runs_says_which(hopeless, tmp_path):
    run, _ = hopeless
    (text,) = warnings_in(RunFolder(run.path).read_log())
    other = shutil.copytree(run.path, tmp_path / "other")
    page = wcdas.write_report(run, other, out=tmp_path / "both").read_text("utf-8")
    assert (
        page.index(f"hopeless: {text}") < page.index(f"other: {text}") < page.index('id="result"')
    )


def test_the_remedy_is_a_setting_that_is_taken(hopeless):
    (text,) = warnings_in(RunFolder(hopeless[0].path).read_log())
    assert parse_settings([text.partition("--set ")[2]]) == {"lr": 0.01}


def test_without_a_console_it_is_a_warning_of_python(features, tmp_path):
    with pytest.warns(RuntimeWarning, match=r"stage representation, epoch \d of 6: nothing is l"):
        train(features, tmp_path / "run", epochs=6)


class Stopping(wcdas.Callback):
    """Ctrl-C in the epoch after the one that was warned of."""

    def on_epoch(self, epoch, facts):
        if "warnings" in facts:
            signal.raise_signal(signal.SIGINT)


def test_a_resumed_run_does_not_say_it_again(features, tmp_path):
    first_time, again = StringIO(), StringIO()
    run = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        train(features, run, epochs=12, callbacks=[Stopping()], console=Console(file=first_time))
    train(None, run, resume=True, console=Console(file=again))
    lines = RunFolder(run).read_log()
    assert len(lines) == 12
    assert "warnings" not in lines[-1]
    assert len(warnings_in(lines)) == 1
    assert "warning:" in first_time.getvalue()
    assert "warning:" not in again.getvalue()


def train(data, out, epochs=None, **more):
    settings = None if epochs is None else {"lr": 1e-6, "batch_size": 6, "epochs": epochs}
    method = None if epochs is None else "softmax"
    return wcdas.train(data, method, settings=settings, out=out, device="cpu", report=False, **more)
