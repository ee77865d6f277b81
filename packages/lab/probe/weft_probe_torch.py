"""PyTorch: a step is the time from the request for its batch to the request for the next one, so that it includes the
code after the optimizer step (such as reading the loss, which waits for the device). Instruments the iterators of data
loaders, the global hooks of optimizers and Tensor.backward; reads the options of loaders and of DDP once."""

import sys
import threading
import zlib

import weft_probe as probe
import weft_probe_background as background
import weft_probe_cuda as cuda
import weft_probe_side
from weft_probe import _clock, guarded
from weft_probe_batches import base_data, first_values, identity_of, length_of, size_of, whole_indices
from weft_probe_ddp import bucket_facts, communication_facts, wrapped_model

_hashed_batches = 4
_hashed_epochs = 4
_summed_parameters = 8


class _Loop:
    """State of the training loop: the loader whose batches are followed by optimizer steps."""

    def __init__(self):
        self.iterator = None  # iterator of the current batch
        self.epoch = 0
        self.epoch_of = None  # iterator that the current epoch belongs to
        self.asked = None
        self.waited = 0.0
        self.samples = None
        self.backward = 0.0
        self.loss = None
        self.losses = []
        self.trained = False  # an optimizer step was made since the batch came
        self.optimizer_began = None
        self.optimizer_time = 0.0
        self.updates = 0  # optimizer steps in this epoch
        self.last_update = None
        self.epoch_start = None
        self.epoch_end = None
        self.epoch_samples = 0
        self.epoch_steps = 0
        self.cpu = True
        self.described = False
        self.optimizer = None  # of the last captured CUDA graph
        self.content = 0  # hash of the values of the first batches
        self.content_batches = 0
        self.all_updates = 0  # optimizer steps of the run
        self.parameters = None
        self.sums = []
        self.orders = []  # hash of the first indices of each epoch
        self.evaluation = 0.0  # seconds of batches without training, from another loader inside training epochs
        self.after = 0.0  # seconds between the end of the optimizer step and the request for the next batch
        self.updated = None  # end of the optimizer step of this batch
        self.passes = 0  # backward passes, and those that exchanged gradients
        self.syncs = 0
        self.loader_starts = 0
        self.loader_start_time = 0.0
        self.thread = None  # the thread that trains, known from the first backward pass on


loop = _Loop()


def _close_step(now):
    """Ends the current batch and records its step, if it trained anything."""
    if loop.asked is None:
        return
    if not loop.trained and not loop.backward:
        if loop.epoch_of is not None and loop.iterator is not loop.epoch_of:
            loop.evaluation += now - loop.asked
    else:
        if not loop.described and loop.trained:
            _describe(None)
        if loop.trained and loop.updated is not None:
            loop.after += now - loop.updated
        if loop.epoch_of is not loop.iterator:
            _close_epoch()
            loop.epoch_of = loop.iterator
            loop.epoch += 1
            loop.epoch_start = loop.asked
        recorder = probe.recorder
        cpu = loop.cpu
        # Inlined `recorder.step`: this is the hot path.
        recorder.pending.append(
            (
                recorder.steps,
                loop.epoch,
                loop.asked,
                now - loop.asked,
                loop.waited,
                loop.samples,
                loop.backward if cpu else None,
                loop.optimizer_time if cpu else None,
                loop.loss if cpu else None,
                loop.trained,
                False,
            )
        )
        recorder.steps += 1
        if now - recorder.last_flush > recorder.flush_seconds:
            recorder.flush()
        loop.epoch_end = now
        loop.epoch_steps += 1
        loop.updates += 1 if loop.trained else 0
        loop.epoch_samples += loop.samples or 0
        if loop.cpu and loop.loss is not None:
            loop.losses.append(loop.loss)
    loop.asked = None
    loop.backward = 0.0
    loop.loss = None
    loop.trained = False
    loop.optimizer_time = 0.0


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
    if loop.updates and loop.epoch_steps >= 2 * loop.updates:
        probe.recorder.fact(accumulation=round(loop.epoch_steps / loop.updates))
    loop.updates = 0
    loop.epoch_steps = 0
    loop.epoch_samples = 0
    loop.losses = []
    loop.epoch_start = None
    loop.epoch_of = None
    if wrapped_model() is not None and probe.recorder.facts.get("ddpBucketBytes") is None:
        guarded("buckets")(bucket_facts)()
    _tell_loop()
    if _clock() - probe.recorder.last_flush > probe.recorder.flush_seconds:
        probe.recorder.flush()


def _tell_loop():
    """Totals of the training loop so far, as facts."""
    probe.recorder.fact(
        evaluationSeconds=round(loop.evaluation, 5),
        afterUpdateSeconds=round(loop.after, 5),
        backwardPasses=loop.passes,
        gradientSyncs=loop.syncs,
        updates=loop.all_updates,
        loaderStarts=loop.loader_starts,
        loaderStartSeconds=round(loop.loader_start_time, 5),
    )
    weft_probe_side.tell()


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
        recorder = probe.recorder
        if recorder.folder is None:
            return original(self)
        asked = _clock()
        if loop.thread is not None and threading.get_ident() != loop.thread:
            return background.next_batch(self, original, asked)
        # Another loader that is used between batch and optimizer step (validation inside the epoch) must not end the step.
        if loop.iterator is self or loop.trained or loop.asked is None:
            try:
                _close_step(asked)
            except Exception as problem:  # noqa: BLE001
                recorder.error("step: %r" % problem)
        try:
            batch = original(self)
        except StopIteration:
            if loop.epoch_of is self:
                guarded("epoch")(_close_epoch)()
            if loop.iterator is self:
                # A loop without a loader may follow.
                loop.iterator = loop.last_update = None
            raise
        got = _clock()
        if loop.thread is not None and threading.get_ident() != loop.thread:
            # The training began on another thread meanwhile.
            guarded("background batch")(background.arrived)(self, batch, asked)
            return batch
        loop.iterator = self
        loop.asked = asked
        loop.waited = got - asked
        loop.samples = None
        try:
            loop.samples = size_of(batch)
            if loop.thread is None:
                background.note(self, asked, loop.samples)
            if loop.content_batches < _hashed_batches:
                _hash_content(batch)
        except Exception as problem:  # noqa: BLE001
            recorder.error("batch: %r" % problem)
        return batch

    base.__next__ = __next__

    # Hash of the first sample indices: ranks with equal hashes draw the same data.
    original_index = base._next_index

    def _next_index(self):
        index = original_index(self)
        seen = self._weft_batches
        if seen < _hashed_batches and probe.recorder.folder is not None:
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


@guarded("loader")
def _loader_facts(iterator):
    loader = getattr(iterator, "_weft_loader", None)
    if loader is None:
        return
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    deciding = sampler
    if type(sampler).__name__ == "SequentialSampler" and type(batch_sampler).__name__ not in ("BatchSampler", "NoneType"):
        deciding = batch_sampler
    replicas = getattr(deciding, "num_replicas", None)
    shuffle = getattr(deciding, "shuffle", None)
    if shuffle is None:
        shuffle = "Random" in type(deciding).__name__
    batch = getattr(loader, "batch_size", None) or getattr(batch_sampler, "batch_size", None)
    probe.recorder.fact(
        dataset=type(base_data(loader.dataset)).__name__,
        datasetSamples=length_of(base_data(loader.dataset)),
        datasetHash=identity_of(base_data(loader.dataset)),
        localSamples=length_of(loader.dataset),
        samplerClass=type(deciding).__name__,
        samplerSharded=bool(replicas is not None and replicas > 1) or _length_says_shard(loader, deciding),
        samplerLength=length_of(deciding if deciding is sampler else sampler),
        batchPerRank=batch,
        stepsPerEpoch=length_of(loader),
        dropLast=bool(getattr(loader, "drop_last", False)),
        shuffle=bool(shuffle),
        loaderWorkers=getattr(loader, "num_workers", None),
        persistentWorkers=bool(getattr(loader, "persistent_workers", False)),
        pinMemory=bool(getattr(loader, "pin_memory", False)),
        prefetchFactor=getattr(loader, "prefetch_factor", None),
    )
    value = getattr(iterator, "_weft_hash", None)
    if value is not None:
        probe.recorder.fact(indexHash="%08x" % value)
    if loop.content_batches and loop.content:
        probe.recorder.fact(contentHash="%08x" % loop.content)


def _length_says_shard(loader, sampler):
    """A custom sampler shards if its length is about the data set's divided by the world size."""
    _, world, _ = probe.whereabouts()
    whole, part = length_of(base_data(loader.dataset)), length_of(sampler)
    if not world or world < 2 or not whole or not part:
        return False
    return part <= whole / world * 1.05 + 1


def _describe(optimizer):
    """Facts that are known at the first step; without an optimizer where the compiler has swallowed its hooks."""
    loop.described = True
    probe.first_step()
    torch = sys.modules["torch"]
    if optimizer is not None:
        _model_facts(optimizer)
    elif torch.cuda.is_initialized():
        loop.cpu = False
        probe.recorder.fact(**cuda.device_facts(torch, torch.device("cuda", torch.cuda.current_device())))
    iterator = background.state.iterator if loop.iterator is None else loop.iterator
    if iterator is not None:
        _loader_facts(iterator)


@guarded("model")
def _model_facts(optimizer):
    torch = sys.modules["torch"]
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if not parameters:
        return
    first = parameters[0]
    loop.parameters = parameters
    loop.cpu = first.device.type == "cpu"
    names = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16"}
    facts = {
        "optimizer": type(optimizer).__name__,
        "learningRate": float(optimizer.param_groups[0].get("lr", 0.0)) or None,
        "device": str(first.device),
        "ompThreads": torch.get_num_threads(),
        "cudnnBenchmark": bool(torch.backends.cudnn.benchmark),
        # A wrapper counts the parameters of its module, which may be more, or those of another model.
        "optimizerParameters": sum(p.numel() for p in parameters),
    }
    if probe.recorder.facts.get("parameters") is None:
        facts["parameters"] = sum(p.numel() for p in parameters)
        facts["gradientBytes"] = sum(p.numel() * p.element_size() for p in parameters)
        facts["gradientElementBytes"] = first.element_size()
    if probe.recorder.facts.get("precision") is None:
        facts["precision"] = names.get(first.dtype, str(first.dtype))
    if probe.recorder.facts.get("parallelism") is None:
        facts["parallelism"] = "none"
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        facts["backend"] = torch.distributed.get_backend()
        facts["worldSize"] = torch.distributed.get_world_size()
    if not loop.cpu:
        facts.update(cuda.device_facts(torch, first.device))
    probe.recorder.fact(**facts)


@guarded("parameter sums")
def _sum_parameters(step):
    """Sums of some parameters: replicas of one model have equal ones on every rank."""
    parameters = loop.parameters
    if not parameters or probe.recorder.facts.get("parallelism") == "fsdp":
        return
    if any(hasattr(p, "device_mesh") or hasattr(p, "placements") for p in parameters[:1]):
        return
    torch = sys.modules["torch"]
    stride = max(1, len(parameters) // _summed_parameters)
    with torch.no_grad():
        chosen = [p.detach().reshape(-1)[:4096].double() for p in parameters[::stride][:_summed_parameters]]
        sums = torch.stack([(p * torch.arange(1, p.numel() + 1, device=p.device)).sum() for p in chosen]).tolist()
    if all(x == x and abs(x) != float("inf") for x in sums):
        hang = sys.modules.get("weft_probe_hang")
        issued = hang.collectives() if hang is not None else None
        loop.sums.append({"step": step, "sums": sums, **({} if issued is None else {"collectives": issued})})
        probe.recorder.fact(parameterSums=list(loop.sums))


def _not_compiling():
    return False


# PyTorch's compiler follows calls into hooks. Its own test shortens them to what it compiles without a break of the graph.
_is_compiling = _not_compiling


def _before_optimizer(optimizer, args, kwargs):
    if _is_compiling():
        return
    loop.optimizer_began = _clock()


def _after_optimizer(optimizer, args, kwargs):
    if _is_compiling():
        loop.trained = True
        return
    if probe.recorder.folder is None:
        return
    if not loop.cpu or not loop.described:
        if cuda.capturing(sys.modules["torch"]):
            # Nothing runs now, and reading a parameter would destroy the graph: the step is counted at each replay.
            loop.optimizer = optimizer
            cuda.note_captured_update()
            return
    _updated(optimizer)


def _replayed():
    if probe.recorder.folder is not None:
        loop.optimizer_began = None
        _updated(loop.optimizer)


def _trains_here():
    """Notes the thread that trains. Where another one fetches the batches, steps are those of a loop without a loader."""
    loop.thread = threading.get_ident()
    if background.fetches(loop.thread, loop):
        loop.iterator = loop.asked = None


def _updated(optimizer):
    """An optimizer step was issued."""
    try:
        if not loop.described:
            _describe(optimizer)
        if loop.thread is None:
            _trains_here()
        now = _clock()
        loop.updated = now
        if loop.optimizer_began is not None:
            loop.optimizer_time += now - loop.optimizer_began
        loop.all_updates += 1
        # After 1, 2, 4, ... 64 steps: few enough to cost nothing, and from the second on replicas have exchanged gradients.
        if loop.all_updates <= 64 and loop.all_updates & (loop.all_updates - 1) == 0:
            _sum_parameters(loop.all_updates)
        if loop.iterator is None:
            # Without a data loader a step is the time between the ends of two optimizer steps.
            if loop.last_update is not None:
                probe.recorder.step(
                    None, loop.last_update, now - loop.last_update, None, None, loop.backward if loop.cpu else None,
                    loop.optimizer_time if loop.cpu else None, loop.loss, True, False,
                )
            loop.last_update = now
            loop.backward = loop.optimizer_time = 0.0
            loop.loss = None
            return
        loop.trained = True
    except Exception as problem:  # noqa: BLE001
        probe.recorder.error("optimizer: %r" % problem)


def watch(torch):
    global _is_compiling
    probe.recorder.fact(framework="torch", frameworkVersion=str(torch.__version__))
    compiler = getattr(torch, "compiler", None)
    _is_compiling = is_compiling = getattr(compiler, "is_compiling", _not_compiling)
    guarded("torch.save")(weft_probe_side.watch_torch)(torch)
    original = torch.Tensor.backward

    def backward(self, *args, **kwargs):
        if is_compiling():
            return original(self, *args, **kwargs)
        if loop.thread is None and probe.recorder.folder is not None:
            guarded("thread")(_trains_here)()
        began = _clock()
        result = original(self, *args, **kwargs)
        try:
            if probe.recorder.folder is not None:
                loop.backward += _clock() - began
                loop.passes += 1
                wrapper = wrapped_model()
                if wrapper is not None and wrapper.require_backward_grad_sync:
                    loop.syncs += 1
                # Reading a loss on a GPU would synchronize; on a CPU it is cheap, but not free: one in eight is read.
                if loop.cpu and (loop.epoch_steps < 8 or loop.epoch_steps % 8 == 0):
                    if not self.is_cuda and self.dim() == 0:
                        loop.loss = self.item()
        except Exception as problem:  # noqa: BLE001
            probe.recorder.error("backward: %r" % problem)
        return result

    backward.__doc__ = original.__doc__
    torch.Tensor.backward = backward

    import torch.optim.optimizer as optimizer

    if hasattr(optimizer, "register_optimizer_step_post_hook"):
        optimizer.register_optimizer_step_pre_hook(_before_optimizer)
        optimizer.register_optimizer_step_post_hook(_after_optimizer)
    else:
        _wrap_steps(optimizer.Optimizer)

    cuda.watch_graphs(getattr(torch.cuda, "graphs", None), _replayed)
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


def _wrap_steps(base):
    """PyTorch before 2.0 has no global hooks: the step of each optimizer is wrapped when it is created."""
    original = base.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        step = self.step

        def wrapped(*step_args, **step_kwargs):
            _before_optimizer(self, None, None)
            result = step(*step_args, **step_kwargs)
            _after_optimizer(self, None, None)
            return result

        wrapped.__doc__ = step.__doc__
        # Schedulers expect the attributes that they set on the method.
        wrapped.__self__ = self
        wrapped.__func__ = getattr(step, "__func__", step)
        self.step = wrapped

    base.__init__ = __init__


def _finish():
    if not probe.recorder.alive():
        return
    if loop.asked is not None and loop.trained:
        # The loop was left early: the last step ended with its optimizer step.
        _close_step((loop.optimizer_began or loop.asked) + loop.optimizer_time)
    _close_epoch()
    guarded("background epoch")(background.close)()
    guarded("loop totals")(_tell_loop)()
    if wrapped_model() is not None:
        guarded("communication times")(communication_facts)()
    torch = sys.modules.get("torch")
    if torch is not None and not loop.cpu:
        probe.recorder.fact(peakMemoryBytes=int(torch.cuda.max_memory_allocated()))
