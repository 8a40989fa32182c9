"""Who listens to signals when, what a second one does, and who ends with a parent."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from wcdas import interrupt as signals
from wcdas.interrupt import (
    SIGNALS,
    Interrupt,
    Stopped,
    number_of,
    signals_held,
    stopped_with_parent,
)


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


def have_a_child(ends, told):
    """In a process that is killed once its child has begun."""
    if os.fork():
        time.sleep(600)
    signals.END_SECONDS = 600 if ends else 0
    with Interrupt() as interrupt, stopped_with_parent():
        told.send("begun")
        while not (ends and interrupt.requested):
            time.sleep(0.002)
        told.send(interrupt.number)
    os._exit(0)


@pytest.mark.parametrize("ends", [True, False])
def test_who_loses_its_parent_ends(ends):
    """As by SIGTERM, and where it does not end by that, all the same."""
    context = multiprocessing.get_context("forkserver")
    heard, told = context.Pipe(duplex=False)
    parent = context.Process(target=have_a_child, args=(ends, told))
    parent.start()
    told.close()
    assert heard.recv() == "begun"
    parent.kill()
    assert heard.poll(600)
    if ends:
        assert heard.recv() == signal.SIGTERM
        assert heard.poll(600)
    with pytest.raises(EOFError):  # both have ended
        heard.recv()


def test_a_block_that_is_over_is_not_watched():
    with stopped_with_parent():
        watching = [t for t in threading.enumerate() if t.name == "watches parent"]
        assert len(watching) == 1
    watching[0].join(600)
    assert not watching[0].is_alive()
