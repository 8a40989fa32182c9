"""What a method is: a head and the stages that train it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Method:
    """A row of the paper's tables.

    Args:
        summary: what it is, in a line.
        paper: where it comes from.
        defaults: the table of a recipe: `head` and `stages`, in the order they run.
    """

    summary: str
    paper: str
    defaults: Mapping[str, Any]


# Stage 1 of the paper: the whole network on the images as they come.
REPRESENTATION = {"trains": "all", "sampler": "instance-balanced", "epochs": 90, "lr": 0.2}
# Stage 2: the classifier alone, on classes drawn equally often.
CLASSIFIER = {"trains": "classifier", "sampler": "class-balanced", "epochs": 30, "lr": 0.2}
