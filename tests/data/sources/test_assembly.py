"""What is done to every image comes back in their order, by one thread or by several."""

import time

import pytest

from wcdas.data.sources.assembly import BLOCK, in_threads


@pytest.mark.parametrize("count", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK, 20 * BLOCK + 7])
@pytest.mark.parametrize("slow", [False, True])
def test_the_order_is_that_of_the_items(count, slow):
    def square(number: int) -> int:
        if slow and number % BLOCK == 0:
            time.sleep(0.002)  # outside the interpreter's lock, so that threads are faster
        return number**2

    assert in_threads(square, range(count)) == [i**2 for i in range(count)]


@pytest.mark.parametrize("bad", [0, BLOCK + 1, 12 * BLOCK])
def test_what_fails_is_raised(bad):
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda number: 1 / (number - bad), range(20 * BLOCK))
