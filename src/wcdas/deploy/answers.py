"""The answer of a model to an image: the same on the command line, in JSON and on the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcdas.data.images import needed_side, open_image
from wcdas.deploy.model import Model
from wcdas.errors import InputError
from wcdas.evaluation.predictions import most_probable
from wcdas.groups import group_names

DIGITS = 6  # of a probability


@dataclass(frozen=True)
class Guess:
    """A class, how probable it is, and how many training images it had."""

    name: str
    probability: float
    group: str
    train_images: int


@dataclass(frozen=True)
class Answer:
    """The most probable classes of an image, or why it cannot be read.

    Args:
        file: the image's.
        top: the most probable classes, the best first.
        unsure: whether the best is below what `abstain` asks for.
        error: why there is no answer.
    """

    file: str
    top: Sequence[Guess] = ()
    unsure: bool = False
    error: str | None = None

    @property
    def status(self) -> str:
        """ok, unsure or unreadable."""
        return "unreadable" if self.error is not None else "unsure" if self.unsure else "ok"

    @property
    def answer(self) -> str | None:
        """The class, None where the model is unsure or the image unreadable."""
        return self.top[0].name if self.status == "ok" else None

    def as_table(self) -> dict[str, Any]:
        """The answer as a table for JSON."""
        top = [
            {
                "class": guess.name,
                "probability": round(guess.probability, DIGITS),
                "group": guess.group,
                "train_images": guess.train_images,
            }
            for guess in self.top
        ]
        table = {"file": self.file, "status": self.status, "answer": self.answer, "top": top}
        return table if self.error is None else table | {"error": self.error}


class Answerer:
    """A model with what a user wants to know of an image, as `predict_files` says it."""

    def __init__(
        self, model: Model, top: int = 3, prior: str | None = None, abstain: float | None = None
    ) -> None:
        if model.takes_features:
            raise InputError(
                f"the model takes vectors of {model.info.channels} numbers, not images; "
                "train one on images"
            )
        check_wanted(top, abstain)
        self.model, self.prior, self.abstain = model, prior, abstain
        # Once: the file of a prior may be gone later.
        self.shift = model.shift(prior)
        self.top = min(top, len(model.class_names))
        self.groups = group_names(torch.tensor(model.info.class_counts))

    def decode(self, image: Path | bytes) -> Tensor:
        """The image as the model takes it; InputError says why it cannot be read."""
        try:
            info = self.model.info
            side = needed_side(info.input_size)
            return self.model.preprocess(open_image(image, info.channels, "the file", side))
        except InputError:
            raise
        except (ValueError, OSError) as error:
            raise InputError(f"the file cannot be read: {error}") from None

    def answer(self, inputs: Tensor) -> Iterator[Answer]:
        """The answers to a batch of decoded images."""
        info = self.model.info
        probabilities, best = most_probable(self.model.scores(inputs) + self.shift, self.top)
        for values, classes in zip(probabilities.tolist(), best.tolist(), strict=True):
            guesses = [
                Guess(info.class_names[c], p, self.groups[c], info.class_counts[c])
                for p, c in zip(values, classes, strict=True)
            ]
            yield Answer("", guesses, self.abstain is not None and values[0] < self.abstain)


def check_wanted(top: int, abstain: float | None = None) -> None:
    if top < 1:
        raise InputError(f"top is {top}; expected 1 or more")
    if abstain is not None and not 0 <= abstain <= 1:
        raise InputError(f"abstain is {abstain}; expected a probability from 0 to 1")
