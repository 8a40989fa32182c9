"""Who listens to signals when, and what a second one does."""

import signal

import pytest

from wcdas.interrupt import SIGNALS, Interrupt, Stopped, number_of, signals_held


@pytest.mark.parametrize("number", SIGNALS)
def test_a_request_is_noted_or_raised(number):
    with Interrupt() as interrupt:
        signal.raise_signal(number)
        assert (interrupt.requested, interrupt.number) == (True, number)
        with pytest.raises(Stopped) as stop, interrupt.raised():
            pytest.fail("it was asked before")
        assert number_of(stop.value) == number
    with Interrupt() as interrupt:
        with pytest.raises(Stopped), interrupt.raised():
            signal.raise_signal(number)
        assert interrupt.requested


def test_one_inside_another_tells_it():
    with Interrupt(raises=True) as outer:
        with Interrupt() as inner:
            signal.raise_signal(signal.SIGTERM)
        assert inner.requested
        assert (outer.requested, outer.number) == (True, signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # a machine asks again
        with Interrupt() as later:
            assert later.requested


def test_a_second_ctrl_c_is_meant_at_once(monkeypatch):
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert not interrupt.at_once
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupt.at_once
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # the terminal's, and the one that torchrun passes on
        assert not interrupt.at_once


def test_handlers_are_given_back_and_nohup_is_heeded():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        handlers = [signal.getsignal(number) for number in SIGNALS]
        with Interrupt():
            assert signal.getsignal(signal.SIGTERM) is not handlers[1]
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_are_held_until_the_end():
    noted = []
    with Interrupt() as interrupt:
        with signals_held():
            signal.raise_signal(signal.SIGHUP)
            noted.append(interrupt.requested)
        noted.append(interrupt.requested)
    assert noted == [False, True]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(SIGNALS)
