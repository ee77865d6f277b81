"""Work beside the training itself: garbage collection, messages, checkpoints. Counted from the first step on, in seconds of
the thread that trains; the totals are facts."""

import sys
import threading

import weft_probe as probe
from weft_probe import _clock, guarded


class _Side:
    def __init__(self):
        self.active = False
        self.thread = None
        self.depth = 0
        self.gc_began = None
        self.gc_pauses = 0
        self.seconds = {"gc": 0.0, "logging": 0.0, "save": 0.0}
        self.calls = {"logging": 0, "save": 0}


side = _Side()
_long_pause = 1e-3


def begin():
    """From the first step on: set-up is not part of the training."""
    if not side.active:
        side.active = True
        side.thread = threading.get_ident()


def _on_gc(phase, info):
    if not side.active or threading.get_ident() != side.thread:
        return
    if phase == "start":
        side.gc_began = _clock()
    elif side.gc_began is not None:
        took = _clock() - side.gc_began
        side.gc_began = None
        side.seconds["gc"] += took
        if took > _long_pause:
            side.gc_pauses += 1


def _timed(function, kind):
    def call(*args, **kwargs):
        if not side.active or side.depth or threading.get_ident() != side.thread:
            return function(*args, **kwargs)
        side.depth = 1
        began = _clock()
        try:
            return function(*args, **kwargs)
        finally:
            side.depth = 0
            side.seconds[kind] += _clock() - began
            side.calls[kind] += 1

    call.__doc__ = getattr(function, "__doc__", None)
    call.__name__ = getattr(function, "__name__", kind)
    call.__wrapped__ = function
    return call


def watch_logging(module):
    # The method behind every message: it finds the caller, makes the record and hands it to the handlers.
    module.Logger._log = _timed(module.Logger._log, "logging")


def watch_torch(torch):
    torch.save = _timed(torch.save, "save")


def arm():
    import builtins
    import gc
    import os

    probe.recorder.tellers.append(tell)
    gc.callbacks.append(_on_gc)
    builtins.print = _timed(builtins.print, "logging")
    os.fsync = _timed(os.fsync, "logging")
    if "logging" in sys.modules:
        watch_logging(sys.modules["logging"])


@guarded("side work")
def tell():
    """Notes the totals as facts, before every write."""
    if not side.active:
        return
    probe.recorder.fact(
        gcSeconds=round(side.seconds["gc"], 5),
        gcPauses=side.gc_pauses,
        loggingSeconds=round(side.seconds["logging"], 5),
        loggingCalls=side.calls["logging"],
        saveSeconds=round(side.seconds["save"], 5),
    )
