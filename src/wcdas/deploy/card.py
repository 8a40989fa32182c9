"""The model card: what the model is for, how well it does by class size, and where it fails."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from huggingface_hub import EvalResult, ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined

from wcdas.data.description import summary
from wcdas.deploy.model import Model
from wcdas.evaluation.table import percent
from wcdas.groups import IN_WORDS
from wcdas.run.model_file import ModelInfo

SHOWN = 5  # classes at either end of the tail

Table = Mapping[str, Any]


def model_card(
    model: Model, metrics: Table | None, run: Table | None, timm_gives: str | None = None
) -> str:
    """The card as Markdown with the header that the Hugging Face Hub reads.

    `timm_gives` says what timm makes of the weights where it loads them too: "logits", "features"
    or "features before the neck".
    """
    environment = Environment(
        loader=PackageLoader("wcdas.deploy"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": escaped, "thousands": "{:,}".format, "percent": percent}
    return environment.get_template("card.md").render(
        header=_header(model.info, metrics, "timm" if timm_gives else "wcdas"),
        info=model.info,
        tail=summary(torch.tensor(model.info.class_counts)),
        ends=_ends(model.info, metrics),
        groups=IN_WORDS,
        metrics=metrics,
        run=run,
        versions=", ".join(f"{k} {v}" for k, v in run["info"]["versions"].items()) if run else "",
        timm_gives=timm_gives,
    )


def escaped(text: str) -> str:
    """A name as Markdown that shows the same characters: no markup, no link, one line."""
    return re.sub(r"[^\w .,-]|_|\.(?=[^\W\d])", lambda c: f"&#{ord(c[0])};", text)


def _header(info: ModelInfo, metrics: Table | None, library: str) -> str:
    results = None
    if metrics and metrics["test_images"]:
        shown = IN_WORDS | {"balanced_accuracy": "balanced", "top1": "top-1"}
        results = [
            EvalResult(
                task_type="image-classification",
                dataset_type="long-tailed",
                dataset_name=info.dataset,
                metric_type="accuracy",
                metric_name=name,
                metric_value=round(metrics[key], 4),
            )
            for key, name in shown.items()
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


def _ends(info: ModelInfo, metrics: Table | None) -> list[Table | None]:
    """The classes with most and with least training images, None for those between."""
    accuracy = {row["class"]: row["accuracy"] for row in metrics["per_class"]} if metrics else {}
    classes = sorted(zip(info.class_names, info.class_counts, strict=True), key=lambda c: -c[1])
    rows: list[Table | None] = [
        {"name": name, "images": images, "accuracy": accuracy.get(name)} for name, images in classes
    ]
    return rows if len(rows) <= 2 * SHOWN else [*rows[:SHOWN], None, *rows[-SHOWN:]]
