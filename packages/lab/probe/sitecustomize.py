"""Loaded by every Python that the runner starts: loads the sitecustomize that this one hides, then starts the probe. Errors
are recorded and never reach the job."""

import os
import sys


def _the_one_before_us():
    """Loads the sitecustomize that this one hides on PYTHONPATH, under its own name."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    ours = sys.modules.get("sitecustomize")
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        raise


if os.environ.get("WEFT_PROBE_DIR"):
    try:
        import weft_probe

        weft_probe.arm()
    except BaseException as problem:  # noqa: B036 - the probe must not prevent the interpreter from starting
        try:
            with open(os.path.join(os.environ["WEFT_PROBE_DIR"], "probe-errors.log"), "a") as log:
                log.write("%d %r\n" % (os.getpid(), problem))
        except OSError:
            pass

_the_one_before_us()
