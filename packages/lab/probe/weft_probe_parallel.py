"""PyTorch's wrappers of a model: records the options of DistributedDataParallel, its bucket sizes, and that a model was wrapped
by DataParallel or FSDP."""

import weft_probe as probe
from weft_probe import guarded

_ddp = []


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

    _ddp[:] = [weakref.ref(model)]


def bucket_facts():
    """Bucket sizes are final after the first backward pass, when DDP rebuilds the buckets."""
    if not _ddp or probe.recorder.facts.get("ddpBucketBytes") is not None:
        return
    model = _ddp[0]()
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
