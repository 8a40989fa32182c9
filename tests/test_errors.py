import pytest

from wcdas.errors import InputError, explained, unknown


def test_an_unknown_name_is_answered_with_the_nearest_or_with_all():
    assert str(unknown("head", "wcda", ["wcdas", "linear"])) == (
        "unknown head 'wcda'; did you mean 'wcdas'?"
    )
    assert str(unknown("head", "x", ["b", "a"])) == "unknown head 'x'; known: a, b"


@pytest.mark.parametrize("error", [TypeError, ValueError, InputError])
def test_an_error_is_explained_by_where_it_happened(error):
    with pytest.raises(InputError, match=r"^neck: features is 3$"), explained("neck: "):
        raise error("features is 3")


def test_an_explained_error_is_one_line():
    with pytest.raises(InputError, match=r"^x cannot be read \(a b\); do y$"):  # noqa: SIM117
        with explained("x cannot be read (", OSError, after="); do y"):
            raise OSError("a\n  b")


def test_only_the_errors_that_are_meant_are_explained():
    with pytest.raises(OSError, match="gone"), explained("file: ", KeyError):
        raise OSError("gone")
