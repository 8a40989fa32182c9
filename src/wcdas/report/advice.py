"""What to try next: each rule looks at a few measured numbers, and says which."""

from collections.abc import Sequence
from dataclasses import dataclass

from wcdas.evaluation.calibration import FEWEST
from wcdas.evaluation.table import percent
from wcdas.groups import FEW
from wcdas.report.charts import counted, signed
from wcdas.report.facts import FAR_BELOW, Facts, Failing
from wcdas.run.automatic import smaller_batch

NEAR_ZERO = 0.10
LARGE_GAP = 0.20
LARGE_ERROR = 0.05
MISCALIBRATED = 0.08
FITTED, BARELY_FITTED = 0.99, 0.90
NOT_GENERALISED = 0.70
STILL_FALLING = 0.05
HEAD_LOSS = 0.05
MOST_OF_A_CLASS, ENOUGH_IMAGES = 0.5, 5
ABOVE_GUESSING = 0.05
FEW_EPOCHS = 30
NAMED, MOST = 3, 6  # failing classes that are named; advice on a page


@dataclass(frozen=True)
class Advice:
    """A thing to do, the numbers that speak for it, and the command if there is one."""

    what: str
    why: str
    command: str = ""


def learnt_nothing(f: Facts) -> Advice | None:
    if f.mean is None or f.mean > 1 / f.classes + ABOVE_GUESSING:
        return None
    if f.train_accuracy is not None and f.train_accuracy > NOT_GENERALISED:
        return None
    why = (
        f"The mean over classes is {percent(f.mean)} %, and guessing among {f.classes:,} gives "
        f"{percent(1 / f.classes)} %."
    )
    if f.warned:
        return Advice(
            "Do first what the warning above says; no other number counts until it learns.", why
        )
    if 0 < f.epochs < FEW_EPOCHS:
        return Advice(
            "Train longer; no other number counts until it learns.",
            f"{why} {counted(f.epochs, 'epoch')} of the first stage may be too few.",
            f.train(f"--set stages.{f.first_stage}.epochs={max(FEW_EPOCHS, 2 * f.epochs)}"),
        )
    return Advice(
        "Look whether another method learns; no other number counts until one does.",
        why,
        f.sweep(*dict.fromkeys(["softmax", "wcdas-prior", f.method])),
    )


def epochs_of_a_single_step(f: Facts) -> Advice | None:
    smaller = smaller_batch(f.images, f.batch)
    if smaller is None:
        return None
    return Advice(
        "Take smaller batches.",
        f"With {f.images:,} training images and batches of {f.batch:,} an epoch is a single step.",
        f.train(f"--set batch_size={smaller}"),
    )


def tail_not_learnt(f: Facts) -> Advice | None:
    if f.few is None or f.few >= NEAR_ZERO or f.prior_in_loss:
        return None
    return Advice(
        "Put the class prior in the loss.",
        f"The few-shot classes are at {percent(f.few)} %, and no stage corrects for their rarity "
        "in its loss.",
        f.train("--method wcdas-prior"),
    )


def tail_not_learnt_with_prior(f: Facts) -> Advice | None:
    if f.few is None or f.few >= NEAR_ZERO or not f.prior_in_loss or f.pretrained:
        return None
    return Advice(
        "Start from pretrained weights, or add images of the smallest classes."
        if f.network
        else "Add samples of the smallest classes.",
        f"The few-shot classes are at {percent(f.few)} % although the class prior is in the loss: "
        "there is too little to learn them from.",
        f.train(f"--set {f.network}") if f.network else "",
    )


def logits_of_the_training_mix(f: Facts) -> Advice | None:
    if f.prior != "train" or f.many is None or f.few is None or f.many - f.few < LARGE_GAP:
        return None
    return Advice(
        "Predict as if all classes were equally frequent; that needs no training.",
        f"The model expects the class mix it was trained on: many {percent(f.many)} %, few "
        f"{percent(f.few)} %.",
        f"wcdas evaluate {f.run} --prior uniform",
    )


def classes_that_fail(f: Facts) -> Advice | None:
    if not f.failing or f.mean is None:
        return None
    worst = f.failing[:NAMED]
    rare = [one.name for one in worst if one.train_images < FEW]
    others = [one.name for one in worst if one.train_images >= FEW]
    give = [f"give {_listed(rare)} more training images"] if rare else []
    look = [f"look at the images and labels of {_listed(others)}"] if others else []
    what = " and ".join(give + look)
    prior = bool(rare) and not f.prior_in_loss and tail_not_learnt(f) is None
    mean = f"the mean over classes is {percent(f.mean)} %"
    if len(f.failing) > NAMED:
        points = f"{100 * FAR_BELOW:.0f} points or more below it"
        mean += f", and {len(f.failing):,} of {f.classes:,} are {points}"
    return Advice(
        f"{what[0].upper()}{what[1:]}{', or put the class prior in the loss' * prior}.",
        f"{'; '.join(map(_told, worst))}; {mean}.",
        f.train("--method wcdas-prior") if prior else "",
    )


def _told(one: Failing) -> str:
    right = f"{percent(one.accuracy)} % of {one.test_images:,} test images right"
    images = counted(one.train_images, "training image")
    return f"{one.name}, with {images}: {right}, {one.taken:,} taken for {one.taken_for}"


def _listed(names: Sequence[str]) -> str:
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last


def classes_never_predicted(f: Facts) -> Advice | None:
    if not f.never_predicted or f.failing or (f.few is not None and f.few < NEAR_ZERO):
        return None
    return Advice(
        "Look at the classes at 0 % in the table, and give them more images.",
        f"{counted(f.never_predicted, 'class is', 'classes are')} never predicted.",
    )


def baseline_missing(f: Facts) -> Advice | None:
    if f.baseline is not None or f.method == "softmax":
        return None
    return Advice(
        "Train the linear softmax baseline, then build this page again.",
        "There is nothing to compare with: no finished softmax run on the same data, with the same "
        "backbone and a report, beside this one.",
        f"{f.train(f'--method softmax --out {f.beside}')} && wcdas report {f.run}",
    )


def within_noise(f: Facts) -> Advice | None:
    difference = _difference(f)
    if not difference or f.headline_error is None or abs(difference) > 2 * f.headline_error:
        return None
    return Advice(
        "Compare over several seeds before believing the difference.",
        f"{f.method} and softmax differ by {signed(100 * difference)} points, and the test "
        f"set alone leaves ± {100 * f.headline_error:.1f} on each.",
        f.sweep("softmax", f.method),
    )


def worse_than_baseline(f: Facts) -> Advice | None:
    difference = _difference(f)
    if difference is None or f.headline_error is None or difference >= -2 * f.headline_error:
        return None
    return Advice(
        "Try other methods; this one does worse than plain softmax here.",
        f"{f.method} is {-100 * difference:.1f} points below the baseline, more than the test "
        "set's noise.",
        f.sweep("softmax", "wcdas", "wcdas-prior", "balms"),
    )


def head_paid_for_the_tail(f: Facts) -> Advice | None:
    if f.baseline is None or f.prior != "uniform":
        return None
    many, few = f.baseline["many"], f.baseline["few"]
    if many is None or few is None or f.many is None or f.few is None:
        return None
    if many - f.many < HEAD_LOSS or f.few <= few:
        return None
    return Advice(
        "If the images to come are mixed like the training ones, predict for that mix.",
        f"Against softmax the tail gained {100 * (f.few - few):.1f} points and the many-shot "
        f"classes paid {100 * (many - f.many):.1f}.",
        f"wcdas evaluate {f.run} --prior train",
    )


def probabilities_are_off(f: Facts) -> Advice | None:
    if f.ece is None or f.ece < MISCALIBRATED or f.confidence is None or f.top1 is None:
        return None
    lean = "too sure" if f.confidence > f.top1 else "not sure enough"
    why = (
        f"The probabilities are off by {percent(f.ece)} % on average, and on the whole {lean}: "
        f"{percent(f.confidence)} % sure, {percent(f.top1)} % right."
    )
    if f.holdout == 0:
        return Advice(
            "Hold images out to fit a temperature.",
            f"{why} No images were held out for it.",
            f.train("--set calibration.holdout=0.05"),
        )
    if f.held_out == 0:
        takes = f"A temperature takes a class with {FEW} training images to hold some out"
        why += f" {takes}, and none has."
    elif f.held_out is not None and f.held_out < FEWEST:
        why += f" Only {counted(f.held_out, 'image')} could be held out for a temperature."
    elif f.held_out is not None and f.held_out < FEW:
        why += f" The temperature was fitted on {counted(f.held_out, 'image')}, too few to help."
    else:
        why += " A temperature can be fitted on held-out images of the larger classes alone."
    if not f.can_smooth or f.confidence <= f.top1:  # smoothing makes less sure
        return Advice("Do not take the probabilities at their word.", why)
    return Advice(
        "Do not take the probabilities at their word; smooth the labels of the last stage.",
        why,
        f.train(f"--set stages.{f.last_stage}.label_smoothing=0.1"),
    )


def still_learning(f: Facts) -> Advice | None:
    if f.late_fall is None or f.late_fall < STILL_FALLING:
        return None
    if f.train_accuracy is None or f.train_accuracy > BARELY_FITTED:
        return None
    return Advice(
        "Train longer.",
        f"In the last tenth of the first stage the loss still fell by {percent(f.late_fall)} %, "
        f"and the training images are at {percent(f.train_accuracy)} %.",
        f.train(f"--set stages.{f.first_stage}.epochs={2 * f.epochs}"),
    )


def learnt_by_heart(f: Facts) -> Advice | None:
    if f.train_accuracy is None or f.headline is None:
        return None
    if f.train_accuracy < FITTED or f.headline > NOT_GENERALISED:
        return None
    return Advice(
        "Mix or augment the training images more." if f.can_mix else "Augment the images more.",
        f"The training images are at {percent(f.train_accuracy)} %, the test images at "
        f"{percent(f.headline)} %: they were learnt by heart.",
        f.train(f"--set stages.{f.first_stage}.mixup=0.4") if f.can_mix else "",
    )


def backbone_not_trained(f: Facts) -> Advice | None:
    if not f.frozen or f.headline is None or f.headline > NOT_GENERALISED:
        return None
    return Advice(
        "Fine-tune the network as well, on a GPU if there is one: start anew with "
        "--set frozen=false.",
        f"The test images are at {percent(f.headline)} % with features that have learnt nothing "
        "from these images.",
    )


def one_confusion(f: Facts) -> Advice | None:
    pair = f.confusion
    if pair is None or pair.images < ENOUGH_IMAGES or pair.images < MOST_OF_A_CLASS * pair.of:
        return None
    if pair.true in [one.name for one in f.failing[:NAMED]]:
        return None
    return Advice(
        f"Look at the images of {pair.true} and {pair.predicted}: are the labels right, and can "
        "a person tell them apart?",
        f"{pair.images} of {pair.of} test images of {pair.true} are taken for {pair.predicted}.",
    )


def classes_not_tested(f: Facts) -> Advice | None:
    if not f.untested:
        return None
    has = counted(f.untested, "class has", "classes have")
    return Advice(
        "Put images of every class in the test set.",
        f"{has} no test images, of {f.classes:,}: nothing is known of how well they are "
        "recognised.",
    )


def few_measured_on_little(f: Facts) -> Advice | None:
    if f.few_error is None or f.few_error < LARGE_ERROR or within_noise(f) is not None:
        return None
    return Advice(
        "Measure the tail on more test images, or over several seeds.",
        f"The few-shot classes have so few test images that their {percent(f.few)} % are "
        f"± {100 * f.few_error:.1f} points.",
        f.sweep(f.method),
    )


def classes_barely_tested(f: Facts) -> Advice | None:
    if not f.barely_tested or few_measured_on_little(f) is not None:
        return None
    has = counted(f.barely_tested, "class has", "classes have")
    return Advice(
        "Put more images of these classes in the test set before judging them.",
        f"{has} one or two test images, of {f.classes:,}: their accuracy says nothing.",
    )


# What matters most first.
RULES = (
    learnt_nothing,
    epochs_of_a_single_step,
    tail_not_learnt,
    tail_not_learnt_with_prior,
    logits_of_the_training_mix,
    classes_that_fail,
    worse_than_baseline,
    backbone_not_trained,
    learnt_by_heart,
    still_learning,
    within_noise,
    head_paid_for_the_tail,
    probabilities_are_off,
    one_confusion,
    classes_never_predicted,
    few_measured_on_little,
    classes_barely_tested,
    classes_not_tested,
    baseline_missing,
)
OF_ANY_RUN = (learnt_nothing, epochs_of_a_single_step, classes_not_tested, baseline_missing)


def advise(facts: Facts) -> list[Advice]:
    """Return what to try next; where nothing was learnt, the numbers say nothing else."""
    rules = RULES if learnt_nothing(facts) is None else OF_ANY_RUN
    return [advice for rule in rules if (advice := rule(facts)) is not None][:MOST]


def _difference(f: Facts) -> float | None:
    before = None if f.baseline is None else f.baseline["headline"]
    return None if before is None or f.headline is None else f.headline - before
