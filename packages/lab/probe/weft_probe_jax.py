"""JAX: devices, compile time, and steps. A step is the time from the end of one block_until_ready to the end of the
next; loops that block elsewhere use `weft_probe.step` (docs/scale.md)."""

import weft_probe as probe
from weft_probe import _clock, guarded

_compile_events = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


class _State:
    compiled = 0.0
    last = None
    described = False
    inside = False


def watch(jax):
    probe.recorder.fact(framework="jax", frameworkVersion=str(jax.__version__))

    def on_duration(name, seconds, **_ignored):
        if name in _compile_events and probe.recorder.alive():
            _State.compiled += seconds
            probe.note_compile()
            probe.recorder.fact(compileSeconds=round(_State.compiled, 4))

    guarded("jax.monitoring")(lambda: jax.monitoring.register_event_duration_secs_listener(on_duration))()

    original_function = jax.block_until_ready

    def block_until_ready(x):
        return _timed(original_function, x)

    block_until_ready.__doc__ = original_function.__doc__
    jax.block_until_ready = block_until_ready

    pmap = getattr(jax, "pmap", None)
    if pmap is not None:

        def watched_pmap(*args, **kwargs):
            probe.recorder.fact(parallelism="pmap")
            return pmap(*args, **kwargs)

        watched_pmap.__doc__ = pmap.__doc__
        watched_pmap.__wrapped__ = pmap
        jax.pmap = watched_pmap
    guarded("jax arrays")(_watch_arrays)()


def _watch_arrays():
    try:
        from jaxlib._jax import ArrayImpl
    except ImportError:
        from jaxlib.xla_extension import ArrayImpl
    original = ArrayImpl.block_until_ready

    def block_until_ready(self):
        return _timed(original, self)

    ArrayImpl.block_until_ready = block_until_ready


def _timed(wait, x):
    """Calls the original function and ends a step. Nested calls (a tree of arrays) count once."""
    if _State.inside or not probe.recorder.alive():
        return wait(x)
    _State.inside = True
    try:
        result = wait(x)
    finally:
        _State.inside = False
    now = _clock()
    try:
        if not getattr(probe.recorder, "manual_steps", False):
            start, _State.last = _State.last, now
            if start is None:
                start = probe.recorder.origin
            if not _State.described:
                _State.described = True
                probe.first_step()
                _describe(x)
            recorder = probe.recorder
            compiled = probe.compiled_since(start)
            if compiled or recorder.due(now - start):
                recorder.own = _clock() - now
                recorder.step(None, start, now - start, None, None, None, None, None, True, compiled)
            else:
                recorder.steps += 1
        elif not _State.described:
            _State.described = True
            _describe(x)
    except Exception as problem:  # noqa: BLE001
        probe.recorder.error("jax step: %r" % problem)
    return result


@guarded("jax facts")
def _describe(x):
    import jax

    devices = jax.devices()
    facts = {
        "deviceCount": len(devices),
        "device": devices[0].platform,
        "deviceName": getattr(devices[0], "device_kind", None),
        "worldSize": jax.process_count(),
    }
    first = jax.tree_util.tree_leaves(x)
    sharding = getattr(first[0], "sharding", None) if first else None
    if sharding is not None and len(sharding.device_set) > 1 and probe.recorder.facts.get("parallelism") is None:
        facts["parallelism"] = "sharding"
        spec = getattr(sharding, "spec", None)
        if spec is not None:
            facts["shardedAxes"] = sum(1 for axis in spec if axis is not None)
    elif probe.recorder.facts.get("parallelism") is None:
        facts["parallelism"] = "none"
    probe.recorder.fact(**facts)
