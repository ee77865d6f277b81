"""Facts about a PyTorch job that are known at its first step: the options of its loader, and its model and optimizer."""

import sys

import weft_probe as probe
import weft_probe_cuda as cuda
from weft_probe import guarded
from weft_probe_batches import base_data, identity_of, length_of

_summed_parameters = 8
_sums = []


@guarded("loader")
def loader_facts(iterator):
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


def _length_says_shard(loader, sampler):
    """A custom sampler shards if its length is about the data set's divided by the world size."""
    _, world, _ = probe.whereabouts()
    whole, part = length_of(base_data(loader.dataset)), length_of(sampler)
    if not world or world < 2 or not whole or not part:
        return False
    return part <= whole / world * 1.05 + 1


@guarded("model")
def model_facts(optimizer, parameters):
    torch = sys.modules["torch"]
    first = parameters[0]
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
    if first.device.type != "cpu":
        facts.update(cuda.device_facts(torch, first.device))
    probe.recorder.fact(**facts)


@guarded("parameter sums")
def sum_parameters(step, parameters):
    """Sums of some parameters: replicas of one model have equal ones on every rank."""
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
        _sums.append({"step": step, "sums": sums, **({} if issued is None else {"collectives": issued})})
        probe.recorder.fact(parameterSums=list(_sums))
