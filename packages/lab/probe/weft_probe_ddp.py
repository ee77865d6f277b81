"""Wrappers of PyTorch models: the options of DistributedDataParallel, its buckets and its own timers; that a model was wrapped by
DataParallel or FullyShardedDataParallel."""

import weft_probe as probe
from weft_probe import guarded

wrapped_models = []  # a weak reference to the last


def wrapped_model():
    """The model that DDP wraps last, or None."""
    return wrapped_models[0]() if wrapped_models else None


def watch_ddp(module):
    ddp = module.DistributedDataParallel
    original = ddp.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        guarded("ddp")(_ddp_facts)(self)

    __init__.__doc__ = original.__doc__
    __init__.__wrapped__ = original
    ddp.__init__ = __init__


def watch_wrapper(kind):
    """Records that a model was wrapped, without options."""

    def watch(module):
        for name in ("DataParallel", "FullyShardedDataParallel"):
            wrapper = getattr(module, name, None)
            if wrapper is not None:
                _note_wrapping(wrapper, kind)

    return watch


def _note_wrapping(wrapper, kind):
    original = wrapper.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        probe.recorder.fact(parallelism=kind)

    __init__.__doc__ = original.__doc__
    __init__.__wrapped__ = original
    wrapper.__init__ = __init__


def _ddp_facts(model):
    parameters = [p for p in model.module.parameters() if p.requires_grad]
    probe.recorder.fact(
        parallelism="ddp",
        model=type(model.module).__name__,
        parameters=sum(p.numel() for p in parameters),
        gradientBytes=sum(p.numel() * p.element_size() for p in parameters),
        gradientElementBytes=parameters[0].element_size() if parameters else None,
        parameterElements=[p.numel() for p in parameters] if len(parameters) <= 4096 else None,
        ddpBucketCapBytes=getattr(model, "bucket_bytes_cap", None),
        ddpStaticGraph=bool(getattr(model, "static_graph", False)),
        ddpGradientAsBucketView=bool(getattr(model, "gradient_as_bucket_view", False)),
        ddpFindUnusedParameters=bool(getattr(model, "find_unused_parameters", False)),
        syncBatchNorms=sum(1 for m in model.module.modules() if type(m).__name__ == "SyncBatchNorm"),
    )
    import weakref

    wrapped_models[:] = [weakref.ref(model)]


def bucket_facts():
    """Bucket sizes are final after the first backward pass, when DDP rebuilds the buckets."""
    model = wrapped_model()
    if model is None:
        return
    data = model._get_ddp_logging_data()
    sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
    listed = [int(size) for size in str(sizes).replace(",", " ").split() if size.strip().isdigit()]
    if listed:
        probe.recorder.fact(ddpBucketBytes=listed)
    first = data.get("first_bucket_size") or data.get("ddp_first_bucket_bytes")
    if first:
        probe.recorder.fact(ddpFirstBucketBytes=int(first))


def communication_facts():
    """Mean times of DDP's own timers, which it keeps for some of the iterations."""
    model = wrapped_model()
    if model is None:
        return
    data = model._get_ddp_logging_data()
    times = [data.get("avg_backward_" + name) for name in ("comm_time", "compute_comm_overlap_time", "compute_time")]
    if all(isinstance(t, (int, float)) and 0 <= t < 1e12 for t in times) and times[0] > 0:
        probe.recorder.fact(ddpCommUs=times[0] / 1e3, ddpOverlapUs=times[1] / 1e3, ddpBackwardUs=times[2] / 1e3)
