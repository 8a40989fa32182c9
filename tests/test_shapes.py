"""Values from files beside the types they should have."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wcdas.errors import InputError
from wcdas.shapes import check_shape


class Row(TypedDict):
    name: str
    share: float | None
    note: NotRequired[str]


@dataclass
class Settings:
    epochs: int
    rates: tuple[float, ...] = ()
    kind: Literal["a", "b"] = "a"
    more: dict[str, Any] = field(default_factory=dict)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
HINTS = [int, float, str, bool, list[Row], dict[str, list[int]], Settings, Row, float | None, Any]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ({"name": "x", "share": None}, Row),
        ({"name": "x", "share": 1, "other": [1]}, Row),
        ([{"name": "x", "share": 0.5, "note": ""}], list[Row]),
        ({"epochs": 3, "rates": [1, 0.5], "kind": "b"}, Settings),
        ({"x": [1]}, dict[str, list[int]]),
        (None, float | None),
    ],
)
def test_what_fits(value, hint):
    check_shape(value, hint, "it")


@pytest.mark.parametrize(
    ("value", "hint", "told"),
    [
        (True, int, "it is True; expected a whole number"),
        (1.0, int, "it is 1.0; expected a whole number"),
        (math.nan, float, "it is nan; expected a number"),
        (math.inf, float, "it is inf; expected a number"),
        ("1", float, "it is '1'; expected a number"),
        (None, str, "it is None; expected a text"),
        ([1], dict[str, int], r"it is \[1\]; expected a table"),
        ({"name": "x"}, Row, "it has no 'share'"),
        ([{"name": "x", "share": "y"}], list[Row], r"it\[0\].share is 'y'; expected a number"),
        ({}, Settings, "it has no 'epochs'"),
        ({"epochs": 1, "kind": "c"}, Settings, "it.kind is 'c'; expected 'a' or 'b'"),
        ({"epochs": 1, "rates": 3}, Settings, "it.rates is 3; expected a list"),
    ],
)
def test_what_does_not(value, hint, told):
    with pytest.raises(InputError, match=told):
        check_shape(value, hint, "it")


@given(JSON, st.sampled_from(HINTS))
def test_any_value_fits_or_is_refused_in_one_line(value, hint):
    told = ""
    try:
        check_shape(value, hint, "it")
    except InputError as error:
        told = str(error)
    assert "\n" not in told


@given(JSON)
def test_what_is_long_is_cut_off(value):
    with pytest.raises(InputError) as refused:
        check_shape([value] * 100, int, "it")
    assert len(str(refused.value)) < 150
