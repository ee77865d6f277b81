"""The hooks of backward passes and optimizer steps of PyTorch, which are taken off for steps that are only counted."""

import threading

import weft_probe as probe
import weft_probe_background as background
from weft_probe import _clock, guarded
from weft_probe_ddp import wrapped_model, wrapped_models
from weft_probe_loop import loop


def compiling(torch):
    """The function that says whether PyTorch's compiler follows this call: its own one shortens hooks to what it compiles without
    a break of the graph."""
    return getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


@guarded("thread")
def trains_here():
    """Notes the thread that trains. Where another one fetches the batches, steps are those of a loop without a loader."""
    loop.thread = threading.get_ident()
    if background.fetches(loop.thread, loop):
        loop.iterator = loop.asked = None


@guarded("gradient exchange")
def _count_sync():
    model = wrapped_model()
    if model is not None and model.require_backward_grad_sync:
        loop.syncs += 1


def _timed_backward(original, tensors, args, kwargs):
    """A backward pass of a step that is observed."""
    loop.passes += 1
    if wrapped_models:
        _count_sync()
    if loop.thread is None:
        trains_here()
    loop.in_backward = True
    began = _clock()
    try:
        result = original(tensors, *args, **kwargs)
    finally:
        loop.in_backward = False
    if loop.full:
        done = _clock()
        loop.backward += done - began
        guarded("loss")(_read_loss)(tensors)
        probe.recorder.own += _clock() - done
    return result


def _read_loss(loss):
    # Reading a loss on a GPU would synchronize; on a CPU it is cheap, but not free: one in eight is read.
    if loop.cpu and (loop.epoch_steps < 8 or loop.epoch_steps % 8 == 0 or probe.recorder.sampling.level):
        if hasattr(loss, "is_cuda") and not loss.is_cuda and loss.dim() == 0:
            loop.loss = loss.item()


class _Listener:
    """The hooks of backward passes and optimizer steps, which can be taken off for steps that are only counted."""

    def __init__(self):
        self.on = True
        self.autograd = None
        self.original = self.backward = None
        self.hooks = []  # where a hook is registered, and the hook
        self.handles = []

    def watch(self, torch, before, after):
        """`before` and `after` are called around optimizer steps."""
        # Tensor.backward calls this function; a change to the class itself would clear the caches of its attributes.
        self.autograd = torch.autograd
        self.original = original = torch.autograd.backward
        is_compiling = compiling(torch)

        def backward(tensors, *args, **kwargs):
            # Checkpointing runs passes inside of passes.
            if is_compiling() or loop.in_backward or probe.recorder.folder is None:
                return original(tensors, *args, **kwargs)
            return _timed_backward(original, tensors, args, kwargs)

        backward.__doc__ = original.__doc__
        backward.__wrapped__ = original
        torch.autograd.backward = self.backward = backward

        import torch.optim.optimizer as optimizer

        if hasattr(optimizer, "register_optimizer_step_post_hook"):
            self.hooks = [
                (optimizer.register_optimizer_step_pre_hook, before),
                (optimizer.register_optimizer_step_post_hook, after),
            ]
            self._register()
        else:
            _wrap_steps(optimizer.Optimizer, before, after)

    def _register(self):
        self.handles = [register(hook) for register, hook in self.hooks]

    def stop(self):
        """Takes the hooks off; False where another tool has wrapped them, or there are none to take off."""
        if not self.hooks or self.autograd.backward is not self.backward:
            return False
        self.on = False
        self.autograd.backward = self.original
        for handle in self.handles:
            handle.remove()
        return True

    def start(self):
        if not self.on:
            self.on = True
            if self.autograd.backward is self.original:
                self.autograd.backward = self.backward
            self._register()


def _wrap_steps(base, before, after):
    """PyTorch before 2.0 has no global hooks: the step of each optimizer is wrapped when it is created."""
    original = base.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        step = self.step

        def wrapped(*step_args, **step_kwargs):
            before(self, None, None)
            result = step(*step_args, **step_kwargs)
            after(self, None, None)
            return result

        wrapped.__doc__ = step.__doc__
        # Schedulers expect the attributes that they set on the method.
        wrapped.__self__ = self
        wrapped.__func__ = getattr(step, "__func__", step)
        self.step = wrapped

    base.__init__ = __init__


listener = _Listener()
