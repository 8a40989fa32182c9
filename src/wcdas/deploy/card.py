"""The model card: what the model is for, how well it does by class size, and where it fails."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from huggingface_hub import EvalResult, ModelCardData

from wcdas.data.profile import LongTailSummary, summary
from wcdas.deploy.model import Model
from wcdas.evaluation.table import percent
from wcdas.groups import IN_WORDS
from wcdas.run.model_file import ModelInfo

SHOWN = 5  # classes at either end of the tail

Table = Mapping[str, Any]

PRIORS = {
    "train": "classes as frequent as in training. For another mix give `--prior uniform` or a file",
    "uniform": "classes that are equally frequent. For another mix give `--prior train` or a file",
    "none": "no known class mix, so `--prior` cannot move it to another one",
}
WITH_WCDAS = """```python
import wcdas
from huggingface_hub import snapshot_download

model = wcdas.load(snapshot_download("USER/REPO"))  # or this folder
probabilities = model.predict(["photo.jpg"])  # of every class
print(model.class_names[int(probabilities[0].argmax())])
```"""


def model_card(
    model: Model,
    metrics: Table | None,
    run: Table | None,
    loading: str = "",
    library: str = "wcdas",
) -> str:
    """The card as Markdown with the header that the Hugging Face Hub reads.

    Args:
        model: the trained one.
        metrics: those of the run's `metrics.json`.
        run: the run's `run.toml`.
        loading: how to load it without wcdas, as Markdown.
        library: what loads it, in the Hub's words.
    """
    info = model.info
    tail = summary(torch.tensor(info.class_counts))
    size = f" at {info.input_size} px" if info.input_size else ""
    neck = f"the neck {escaped(info.neck)} and " if info.neck != "none" else ""
    title = f"{escaped(info.dataset)}, {escaped(info.method)}"
    sections = [
        f"# {title}",
        f"An image classifier for long-tailed data: {escaped(info.backbone)}{size} with "
        f"{neck}the head {escaped(info.head)}, trained by the method {escaped(info.method)} on "
        f"{escaped(info.dataset)}: {tail.images:,} training images of {tail.classes:,} classes.",
        "## How well it does",
        _results(metrics),
        "## The data's tail",
        _tail(info, tail, metrics),
        "## Intended use",
        _intended_use(tail),
        "## Limits",
        _limits(info, tail, metrics),
        "## How to use it",
        WITH_WCDAS,
        loading,
        "## How to reproduce it",
        _reproduction(info, run),
    ]
    header = _header(info, metrics, library)
    return f"---\n{header}\n---\n\n" + "\n\n".join(filter(None, sections)) + "\n"


def escaped(text: str) -> str:
    """A name as Markdown that shows the same characters: no markup, no link, one line."""
    return re.sub(r"[^\w .,-]|_|\.(?=[^\W\d])", lambda c: f"&#{ord(c[0])};", text)


def _header(info: ModelInfo, metrics: Table | None, library: str) -> str:
    results = None
    if metrics and metrics["test_images"]:
        results = [
            EvalResult(
                task_type="image-classification",
                dataset_type="long-tailed",
                dataset_name=info.dataset,
                metric_type="accuracy",
                metric_name=name,
                metric_value=round(metrics[key], 4),
            )
            for key, name in [
                *IN_WORDS.items(),
                ("balanced_accuracy", "balanced"),
                ("top1", "top-1"),
            ]
            if metrics[key] is not None
        ]
    card = ModelCardData(
        library_name=library,
        pipeline_tag="image-classification",
        tags=["image-classification", "long-tailed", "imbalanced", "wcdas"],
        model_name=f"{info.dataset}, {info.method}",
        eval_results=results,
    )
    return str(card.to_yaml())


def _results(metrics: Table | None) -> str:
    if not metrics:
        return "Not measured: the model came without its run."
    if not metrics["test_images"]:
        return "Not measured: the data had no test images."
    rows = [
        f"| {words} | {metrics['group_classes'][name]:,} | {percent(metrics[name])} |"
        for name, words in IN_WORDS.items()
    ]
    balanced = metrics["headline"] == "balanced_accuracy"
    everything = "all (balanced)" if balanced else "all"
    headline = percent(metrics[metrics["headline"]])
    rows.append(f"| {everything} | {len(metrics['per_class']):,} | {headline} |")
    return "\n".join(
        [
            "| training images of the class | classes | accuracy in % |",
            "| --- | ---: | ---: |",
            *rows,
            "",
            f"On {metrics['test_images']:,} test images, after the last epoch; nothing was chosen "
            f"on them. Top-1 {percent(metrics['top1'])}, balanced accuracy "
            f"{percent(metrics['balanced_accuracy'])}, macro F1 {percent(metrics['macro_f1'])}, "
            f"calibration error {percent(metrics['ece'])}.",
        ]
    )


def _tail(info: ModelInfo, tail: LongTailSummary, metrics: Table | None) -> str:
    accuracy = {row["class"]: row["accuracy"] for row in metrics["per_class"]} if metrics else {}
    order = sorted(range(tail.classes), key=lambda c: -info.class_counts[c])
    ends = order if len(order) <= 2 * SHOWN else [*order[:SHOWN], None, *order[-SHOWN:]]
    rows = [
        f"| {escaped(info.class_names[c])} | {info.class_counts[c]:,} | "
        f"{percent(accuracy.get(info.class_names[c]))} |"
        if c is not None
        else "| … | … | … |"
        for c in ends
    ]
    return "\n".join(
        [
            f"The largest class has {tail.largest:,} training images, the smallest "
            f"{tail.smallest:,}: an imbalance of {tail.imbalance:,.0f}. Classes by their training "
            f"images: {IN_WORDS['many']} {tail.many:,}, {IN_WORDS['medium']} {tail.medium:,}, "
            f"{IN_WORDS['few']} {tail.few:,}.",
            "",
            "| class | training images | accuracy in % |",
            "| --- | ---: | ---: |",
            *rows,
        ]
    )


def _intended_use(tail: LongTailSummary) -> str:
    return (
        f"To sort images that look like those of training into these {tail.classes:,} classes, "
        "one class an image, and to study long-tailed recognition. A threshold on its probability "
        "(`wcdas predict --abstain P`) sends doubtful images to a person."
    )


def _limits(info: ModelInfo, tail: LongTailSummary, metrics: Table | None) -> str:
    points = [
        "It answers one of its classes to any image, also to one that shows none of them.",
        "Other cameras, places or years than those of the training images may cost accuracy; "
        "measure on your own images with `wcdas evaluate RUN --data FOLDER`.",
        f"It was trained to expect {PRIORS[info.prior]}.",
    ]
    if tail.few:
        points.insert(
            1,
            f"{tail.few:,} of its classes had fewer than 20 training images: what it says about "
            "them is worth less than what it says about the others.",
        )
    if metrics and metrics["never_predicted"]:
        points.append(f"It never answers {metrics['never_predicted']:,} classes of the test set.")
    points.append(
        "Its temperature is 1: the probabilities are as training left them."
        if info.temperature == 1.0
        else f"Its temperature is {info.temperature:.2f}, fitted on training images held out, most "
        "of them of the larger classes: probabilities of rare classes are less certain."
    )
    points.append("It is not meant for decisions about people.")
    return "\n".join(f"- {point}" for point in points)


def _reproduction(info: ModelInfo, run: Table | None) -> str:
    if not run:
        return "The model came without its run."
    facts = run["info"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        "```sh\nwcdas train DATA --recipe run.toml\n```\n\n"
        f"`run.toml` holds every setting; DATA is {escaped(info.dataset)}, of fingerprint "
        f"{escaped(str(facts['fingerprint']))}. Seed {run['seed']}; made with {escaped(versions)}."
    )
