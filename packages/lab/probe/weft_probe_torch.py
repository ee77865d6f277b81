"""PyTorch: a step is the time from the request for its batch to the request for the next one, so that it includes the
code after the optimizer step (such as reading the loss, which waits for the device). Instruments the iterators of data
loaders, the global hooks of optimizers and Tensor.backward; reads the options of loaders and of DDP once. Steps that are not
recorded (weft_probe_sampling) are only counted, at the request for the next batch and without the other hooks: code that runs
once per step is never in the caches, and costs five times what a benchmark of it shows."""

import sys
import threading
import zlib

import weft_probe as probe
import weft_probe_background as background
import weft_probe_cuda as cuda
import weft_probe_side
from weft_probe import _clock, guarded
from weft_probe_batches import first_values, samples_before, size_of, whole_indices
from weft_probe_ddp import bucket_facts, communication_facts, wrapped_model
from weft_probe_facts import loader_facts, model_facts, sum_parameters
from weft_probe_listener import compiling, listener, trains_here
from weft_probe_loop import loop

_hashed_batches = 4
_hashed_epochs = 4
_summed_updates = 64


def _close_step(now):
    """Ends the current batch and counts or records its step, if it trained anything."""
    asked, trained = loop.asked, loop.trained
    if asked is None:
        return
    passes, syncs, updates = loop.before
    if not trained and loop.passes == passes:
        if loop.epoch_of is not None and loop.iterator is not loop.epoch_of:
            loop.evaluation += now - asked
        elif loop.epoch_of is not None:
            loop.seen.odd += 1
    else:
        if trained and not loop.described:
            _describe(None)
        if loop.epoch_of is not loop.iterator:
            _close_epoch()
            loop.suspended = None
            loop.epoch_of = loop.iterator
            loop.epoch += 1
            loop.epoch_start = asked
        seen = loop.seen
        seen.steps += 1
        seen.passes += loop.passes - passes
        seen.syncs += loop.syncs - syncs
        made = round(loop.all_updates - updates)
        seen.updates += made
        seen.changes += made != seen.last
        seen.last = made
        loop.updates += trained
        if trained and loop.updated is not None:
            loop.after += now - loop.updated
            seen.after += now - loop.updated
        loop.epoch_end = now
        loop.epoch_steps += 1
        loop.epoch_samples += loop.samples or 0
        recorder = probe.recorder
        if loop.full or now - asked > recorder.sampling.long:
            _record_step(recorder, now)
        else:
            recorder.steps += 1
        loop.trained = False
    loop.asked = None


def _begin_counting(iterator):
    """Steps of this loader are only counted from now on, if others have shown what they do, and all do the same."""
    if loop.epoch_of is not iterator or loop.all_updates < _summed_updates:
        return
    # Hooks that the compiler has swallowed cost nothing, and must not change behind its back.
    if loop.seen.all_alike() and listener.stop():
        sampling = probe.recorder.sampling
        loop.counted, loop.long = iterator, sampling.long
        loop.left = loop.counted_steps = sampling.next - probe.recorder.steps
        loop.samples_before = samples_before(iterator, loop.samples)
        if loop.samples_before is None:
            # Batches are counted when they arrive, as this one has.
            loop.epoch_samples += loop.samples or 0


def _end_counting():
    """Adds the steps that were only counted. The hooks listen again."""
    listener.start()
    steps = loop.counted_now()
    loop.counted = None
    probe.recorder.steps += steps
    _add_counted(steps)


def _add_counted(steps):
    """Steps do what those that were observed do on average."""
    first = loop.epoch_steps
    loop.epoch_steps += steps
    loop.epoch_counted += steps
    sizes = loop.samples_before
    loop.epoch_samples += sizes(loop.epoch_steps) - sizes(first) if sizes else 0
    each = steps / loop.seen.steps
    loop.passes += loop.seen.passes * each
    loop.syncs += loop.seen.syncs * each
    loop.all_updates += loop.seen.updates * each
    loop.after += loop.seen.after * each


def _close_counted(now):
    """Ends a step that was only counted: a long one, or the one before a step that is recorded."""
    _end_counting()
    _add_counted(1)
    recorder = probe.recorder
    if now - loop.asked > recorder.sampling.long:
        loop.trained = True
        _record_step(recorder, now)
        loop.trained = False
    else:
        recorder.steps += 1
    loop.epoch_end = now
    loop.asked = None


def _record_step(recorder, now):
    timed = loop.cpu and loop.full
    if timed and loop.loss is not None:
        loop.losses.append(loop.loss)
    # Observing a step makes it longer.
    duration = now - loop.asked - (recorder.own if loop.full else 0.0)
    recorder.step(
        loop.epoch, loop.asked, duration, loop.waited, loop.samples, loop.backward if timed else None,
        loop.optimizer_time if timed else None, loop.loss if timed else None, loop.trained, False,
    )
    loop.backward = loop.optimizer_time = 0.0
    loop.loss = None


def _close_epoch():
    if loop.epoch_of is None or loop.epoch_start is None or loop.epoch_steps == 0:
        return
    fields = {
        "epoch": loop.epoch,
        "seconds": loop.epoch_end - loop.epoch_start,
        "steps": loop.epoch_steps,
    }
    if loop.epoch_samples:
        fields["samples"] = loop.epoch_samples
    order = getattr(loop.epoch_of, "_weft_hash", None)
    if order is not None and len(loop.orders) < _hashed_epochs:
        loop.orders.append("%08x" % order)
        probe.recorder.fact(epochIndexHashes=list(loop.orders))
    losses = [x for x in loop.losses if x == x and abs(x) != float("inf")]
    if losses:
        fields["trainLoss"] = sum(losses) / len(losses)
    probe.recorder.record("epoch", **fields)
    observed = loop.epoch_steps - loop.epoch_counted
    # Epochs of which few steps were observed say it less exactly than the first.
    if loop.updates and observed >= 2 * loop.updates and not (loop.epoch_counted and "accumulation" in probe.recorder.facts):
        probe.recorder.fact(accumulation=round(observed / loop.updates))
    loop.updates = 0
    loop.epoch_steps = loop.epoch_counted = 0
    loop.epoch_samples = 0
    loop.losses = []
    loop.epoch_start = None
    loop.epoch_of = None
    if wrapped_model() is not None and probe.recorder.facts.get("ddpBucketBytes") is None:
        guarded("buckets")(bucket_facts)()
    if _clock() - probe.recorder.last_flush > probe.recorder.flush_seconds:
        probe.recorder.flush()


def _end_epoch(iterator, counted=None):
    """A loader has no further batch; `counted`: when, where its last steps were only counted."""
    if counted is not None:
        _end_counting()
        loop.epoch_end, loop.asked = counted, None
    if loop.epoch_of is iterator:
        _close_epoch()
    if loop.suspended is not None and loop.iterator is iterator:
        loop.resume()
    elif loop.iterator is iterator:
        # A loop without a loader may follow.
        loop.iterator = loop.last_update = None


def _tell_loop():
    """Totals of the training loop so far, as facts; before every write."""
    if not loop.described:
        return
    probe.recorder.fact(
        evaluationSeconds=round(loop.evaluation, 5),
        afterUpdateSeconds=round(loop.after, 5),
        backwardPasses=round(loop.passes),
        gradientSyncs=round(loop.syncs),
        updates=round(loop.all_updates),
        loaderStarts=loop.loader_starts,
        loaderStartSeconds=round(loop.loader_start_time, 5),
    )


def _watch_starts(loader):
    """Times the start of loader processes, which every epoch pays unless they persist."""
    original = loader.__iter__

    def __iter__(self):
        if probe.recorder.folder is None or not getattr(self, "num_workers", 0):
            return original(self)
        began = _clock()
        before = getattr(self, "_iterator", None)
        result = original(self)
        if result is not before:
            loop.loader_starts += 1
            loop.loader_start_time += _clock() - began
        return result

    __iter__.__doc__ = original.__doc__
    loader.__iter__ = __iter__


def watch_data(module):
    guarded("loader starts")(_watch_starts)(module.DataLoader)
    base = module._BaseDataLoaderIter
    original = base.__next__

    def __next__(self):
        asked = _clock()
        if loop.counted is self:
            left = loop.left - 1
            if left and asked - loop.asked <= loop.long:
                loop.left = left
                loop.asked = asked
                try:
                    batch = original(self)
                except StopIteration:
                    guarded("counted steps")(_end_epoch)(self, asked)
                    raise
                loop.waited = _clock() - asked
                if loop.samples_before is None:
                    loop.epoch_samples += size_of(batch) or 0
                return batch
        recorder = probe.recorder
        if recorder.folder is None:
            return original(self)
        if loop.counted is not None:
            guarded("counted steps")(_close_counted)(asked)
        if loop.thread is not None and threading.get_ident() != loop.thread:
            return background.next_batch(self, original, asked)
        if loop.suspended is not None and loop.suspended[0] is self:
            loop.resume()
        # Another loader that is used between batch and optimizer step (validation inside the epoch) must not end the step.
        if loop.iterator is self or loop.trained or loop.asked is None:
            try:
                _close_step(asked)
            except Exception as problem:  # noqa: BLE001
                recorder.error("step: %r" % problem)
            loop.before = (loop.passes, loop.syncs, loop.all_updates)
        elif loop.iterator is loop.epoch_of:
            loop.suspend()
            loop.before = (loop.passes, loop.syncs, loop.all_updates)
        elif loop.passes != loop.before[0]:
            # Two loaders feed one step.
            loop.seen.odd += 1
        full = recorder.steps == recorder.sampling.next
        closed = _clock()
        try:
            batch = original(self)
        except StopIteration:
            guarded("epoch")(_end_epoch)(self)
            raise
        got = _clock()
        if loop.thread is not None and threading.get_ident() != loop.thread:
            # The training began on another thread meanwhile.
            guarded("background batch")(background.arrived)(self, batch, asked)
            return batch
        loop.iterator = self
        loop.asked = asked
        loop.waited = got - closed
        loop.full = full
        loop.samples = None
        try:
            loop.samples = size_of(batch)
            if full:
                _note_batch(self, batch)
            elif recorder.sampling.level:
                _begin_counting(self)
            took = closed - asked + _clock() - got
            if full:
                recorder.own = took
            else:
                # The fewer steps are recorded, the less there is of it.
                recorder.besides += took
        except Exception as problem:  # noqa: BLE001
            recorder.error("batch: %r" % problem)
        return batch

    base.__next__ = __next__

    # Hash of the first sample indices: ranks with equal hashes draw the same data.
    original_index = base._next_index

    def _next_index(self):
        index = original_index(self)
        seen = self._weft_batches
        if seen < _hashed_batches and len(loop.orders) < _hashed_epochs and probe.recorder.folder is not None:
            try:
                self._weft_batches = seen + 1
                found = whole_indices(getattr(self, "_dataset", None), index)
                self._weft_hash = zlib.crc32(repr(found).encode(), getattr(self, "_weft_hash", None) or 0)
            except Exception:  # noqa: BLE001 - an index that cannot be listed is not an error
                self._weft_batches = _hashed_batches
        return index

    base._weft_batches = 0
    base._next_index = _next_index

    # Persistent loader processes use one iterator for all epochs: each epoch has its own hash.
    original_reset = base._reset

    def _reset(self, *args, **kwargs):
        self._weft_batches, self._weft_hash = 0, None
        return original_reset(self, *args, **kwargs)

    base._reset = _reset

    original_init = base.__init__

    def __init__(self, loader, *args, **kwargs):
        original_init(self, loader, *args, **kwargs)
        try:
            self._weft_loader = loader
        except Exception:  # noqa: BLE001
            pass

    base.__init__ = __init__


def _note_batch(iterator, batch):
    if loop.thread is None:
        background.note(iterator, loop.asked, loop.samples)
    if loop.content_batches < _hashed_batches:
        _hash_content(batch)


def _hash_content(batch):
    """Adds the first values of a batch to the hash: ranks with equal hashes work on the same data, whatever indices say."""
    values = first_values(batch)
    if values is None:
        loop.content_batches = _hashed_batches
        return
    loop.content = zlib.crc32(repr(values).encode(), loop.content)
    loop.content_batches += 1
    if loop.content_batches == _hashed_batches or loop.described:
        probe.recorder.fact(contentHash="%08x" % loop.content)


def _describe(optimizer):
    """Facts that are known at the first step; without an optimizer where the compiler has swallowed its hooks."""
    loop.described = True
    probe.first_step()
    torch = sys.modules["torch"]
    if optimizer is not None:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if parameters:
            loop.parameters = parameters
            loop.cpu = parameters[0].device.type == "cpu"
            model_facts(optimizer, parameters)
    elif torch.cuda.is_initialized():
        loop.cpu = False
        probe.recorder.fact(**cuda.device_facts(torch, torch.device("cuda", torch.cuda.current_device())))
    iterator = background.state.iterator if loop.iterator is None else loop.iterator
    if iterator is not None:
        loader_facts(iterator)
        if loop.content_batches and loop.content:
            probe.recorder.fact(contentHash="%08x" % loop.content)


def _is_compiling():
    return False


def _before_optimizer(optimizer, args, kwargs):
    if _is_compiling():
        return
    if loop.full:
        loop.optimizer_began = _clock()


def _after_optimizer(optimizer, args, kwargs):
    if _is_compiling():
        loop.trained = True
        return
    if probe.recorder.folder is None:
        return
    if not (loop.cpu and loop.described) and cuda.capturing(sys.modules["torch"]):
        # Nothing runs now, and reading a parameter would destroy the graph: the step is counted at each replay.
        loop.optimizer = optimizer
        cuda.note_captured_update()
        return
    _updated(optimizer)


def _captures():
    """A graph is going to be captured: what it contains must be seen."""
    if loop.counted is not None:
        _end_counting()


def _replayed():
    if probe.recorder.folder is not None:
        loop.optimizer_began = None
        _updated(loop.optimizer)


def _updated(optimizer):
    """An optimizer step was issued."""
    now = _clock()
    loop.updated = now
    loop.all_updates += 1
    if not loop.full and loop.iterator is not None and loop.all_updates > _summed_updates:
        loop.trained = True
        return
    try:
        if not loop.described:
            _describe(optimizer)
            now = loop.updated = _clock()
        if loop.thread is None:
            trains_here()
        if loop.optimizer_began is not None:
            loop.optimizer_time += now - loop.optimizer_began
            loop.optimizer_began = None
        # After 1, 2, 4, ... steps: few enough to cost nothing, and from the second on replicas have exchanged gradients.
        if loop.all_updates <= _summed_updates and loop.all_updates & (loop.all_updates - 1) == 0:
            sum_parameters(loop.all_updates, loop.parameters)
        if loop.iterator is None:
            _between_updates(now)
        else:
            loop.trained = True
        if loop.full:
            probe.recorder.own += _clock() - now
    except Exception as problem:  # noqa: BLE001
        probe.recorder.error("optimizer: %r" % problem)


def _between_updates(now):
    """Without a data loader a step is the time between the ends of two optimizer steps."""
    recorder = probe.recorder
    if loop.last_update is not None:
        duration = now - loop.last_update
        if recorder.due(duration):
            timed = loop.cpu and loop.full
            recorder.step(
                None, loop.last_update, duration, None, None, loop.backward if timed else None,
                loop.optimizer_time if timed else None, loop.loss, True, False,
            )
        else:
            recorder.steps += 1
        loop.full = recorder.steps == recorder.sampling.next
    loop.last_update = now
    loop.backward = loop.optimizer_time = 0.0
    loop.loss = None


def watch(torch):
    global _is_compiling
    probe.recorder.tellers.append(guarded("loop totals")(_tell_loop))
    probe.recorder.fact(framework="torch", frameworkVersion=str(torch.__version__))
    _is_compiling = is_compiling = compiling(torch)
    guarded("torch.save")(weft_probe_side.watch_torch)(torch)
    listener.watch(torch, _before_optimizer, _after_optimizer)
    cuda.watch_graphs(getattr(torch.cuda, "graphs", None), _captures, _replayed)
    autocast = getattr(torch, "autocast", None)
    if autocast is not None:
        enter = autocast.__enter__

        def __enter__(self):
            if is_compiling():
                return enter(self)
            try:
                dtype = str(getattr(self, "fast_dtype", "")).replace("torch.", "")
                if getattr(self, "_enabled", True) and dtype in ("float16", "bfloat16"):
                    probe.recorder.fact(precision="amp-fp16" if dtype == "float16" else "amp-bf16")
            except Exception as problem:  # noqa: BLE001
                probe.recorder.error("autocast: %r" % problem)
            return enter(self)

        autocast.__enter__ = __enter__

    import atexit

    # Registered after the end hook of the probe, therefore called before it.
    atexit.register(guarded("last epoch")(_finish))


def _finish():
    if not probe.recorder.alive():
        return
    if loop.asked is not None and loop.trained:
        # The loop was left early: the last step ended with its optimizer step.
        _close_step(max(loop.asked, loop.updated or loop.asked))
    if loop.counted is not None:
        # Nobody has asked for a batch after the last one.
        _end_counting()
        _add_counted(1)
        probe.recorder.steps += 1
    _close_epoch()
    guarded("background epoch")(background.close)()
    if wrapped_model() is not None:
        guarded("communication times")(communication_facts)()
    torch = sys.modules.get("torch")
    if torch is not None and not loop.cpu:
        probe.recorder.fact(peakMemoryBytes=int(torch.cuda.max_memory_allocated()))
