"""Loaders that another thread reads ahead of the training: their batches say nothing about single steps, but their epochs count
what a rank works on."""

import threading

import weft_probe as probe
from weft_probe_batches import base_data, size_of


class _State:
    def __init__(self):
        self.loop = None  # the training loop, once batches are known to come from another thread
        self.thread = None  # the thread that asked for the last batch before the first backward pass
        self.data = None  # the data set of the training: other loaders do not count
        self.iterator = None
        self.ended = False
        self.start = None
        self.batches = 0
        self.samples = 0


state = _State()


def _data_of(iterator):
    return base_data(getattr(iterator, "_dataset", None))


def note(iterator, asked, samples):
    """A batch that arrived before the first backward pass, on whichever thread."""
    state.thread = threading.get_ident()
    _count(iterator, asked, samples)


def fetches(training, loop):
    """Whether the batches so far came from another thread than the one that trains; then their epochs are counted here."""
    if state.thread is None or state.thread == training:
        return False
    state.data, state.loop = _data_of(state.iterator), loop
    return True


def _count(iterator, asked, samples):
    if state.iterator is not iterator or state.ended:
        close()
        state.iterator, state.ended, state.start, state.batches, state.samples = iterator, False, asked, 0, 0
    state.batches += 1
    state.samples += samples or 0


def next_batch(iterator, original, asked):
    """The next batch of a loader on a thread that does not train."""
    try:
        batch = original(iterator)
    except StopIteration:
        if state.iterator is iterator:
            state.ended = True
        raise
    probe.guarded("background batch")(arrived)(iterator, batch, asked)
    return batch


def arrived(iterator, batch, asked):
    """Counts a batch of the training's data set."""
    if state.loop is not None and _data_of(iterator) is state.data:
        _count(iterator, asked, size_of(batch))


def close():
    """Records the epoch, which lasted until its last optimizer step."""
    loop = state.loop
    if loop is None or not state.batches or loop.last_update is None or loop.last_update <= state.start:
        return
    loop.epoch += 1
    fields = {"epoch": loop.epoch, "seconds": loop.last_update - state.start, "steps": state.batches}
    if state.samples:
        fields["samples"] = state.samples
    probe.recorder.record("epoch", **fields)
    state.batches = 0
