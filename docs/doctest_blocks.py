"""Griffe extension: shows the `>>>` examples of docstrings as code."""

import re
from typing import Any

import griffe

# From a prompt to the next empty line; one that is indented outside `Example:` is code already.
_EXAMPLE = re.compile(
    r"^(?P<indent>|(?<=Example:\n) +)>>> .*\n?(?:(?P=indent)\S.*\n?)*", re.MULTILINE
)


class DoctestBlocks(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    indent, text = example["indent"], example[0].rstrip("\n")
    return f"{indent}```pycon\n{text}\n{indent}```\n"
