"""The probe: instruments a measured job without a change to its code. Writes JSON lines (docs/lab-format.md) into
WEFT_PROBE_DIR, one file per rank. Costs less than 1% of a step, for which it samples short ones; its own errors are recorded
as facts and never raised. Uses the standard library only; a framework is instrumented when the job imports it."""

import json
import os
import sys
import threading
import time

from weft_probe_sampling import Sampling

_clock = time.perf_counter


def guarded(name):
    """Decorator: an exception of the probe is recorded under `name`, never raised into the job."""

    def wrap(function):
        def call(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except Exception as problem:  # noqa: BLE001
                recorder.error("%s: %s: %s" % (name, type(problem).__name__, problem))
                return None

        return call

    return wrap


class Recorder:
    """Buffers records in memory and appends them to the rank's file about once per second."""

    flush_seconds = 1.0

    def __init__(self, folder):
        self.folder = folder
        self.pid = os.getpid()
        self.began = time.time()
        self.origin = _clock()
        self.file = None
        self.rank = None
        self.pending = []
        self.facts = {}
        self.pending_facts = {}
        self.errors = []
        self.tellers = []  # functions that note totals as facts before a write
        self.steps = 0
        self.sampling = Sampling()
        self.own = 0.0  # seconds that the probe itself took in this step, and in steps since the last record
        self.besides = 0.0
        self.last_flush = self.origin
        self.line_cost = 0.0  # seconds per line of the last write
        self.failed = None
        self.ended = False
        self.lock = threading.Lock()

    def alive(self):
        # Forked children reset the folder (see `arm`), so that the process id need not be checked here.
        return self.folder is not None

    def error(self, text):
        if text not in self.errors and len(self.errors) < 32:
            self.errors.append(text)
            self.fact(probeErrors=list(self.errors))

    def fact(self, **known):
        for key, value in known.items():
            if value is not None and self.facts.get(key) != value:
                self.facts[key] = value
                self.pending_facts[key] = value

    def steps_now(self):
        """Steps so far, with those that are only counted at present."""
        torch_loop = sys.modules.get("weft_probe_loop")
        return self.steps + (torch_loop.loop.counted_now() if torch_loop is not None else 0)

    def due(self, duration):
        """Whether a step that took so many seconds is recorded; others are only counted."""
        return self.steps == self.sampling.next or duration > self.sampling.long

    def step(self, epoch, start, duration, waited, samples, backward, optimizer, loss, stepped, compiled):
        """Records a step: stores one tuple, which is formatted as JSON when it is written."""
        sampling, step = self.sampling, self.steps
        weight = sampling.recorded(step, self.own + self.besides, duration)
        self.pending.append(
            (step, epoch, start, duration, waited, samples, backward, optimizer, loss, stepped, compiled, weight)
        )
        self.steps = step + 1
        self.own = self.besides = 0.0
        if _clock() - self.last_flush > self.flush_seconds or step == sampling.first_steps:
            self.flush()
            sampling.decide(self.line_cost)
            if sampling.wanted:
                self.fact(stepSampling=1 << sampling.wanted, probeStepUs=round(sampling.cost * 1e6, 1))

    def record(self, kind, **fields):
        self.pending.append({"v": 1, "type": kind, "t": time.time(), **fields})

    def event(self, name, level="info", message=None, data=None):
        fields = {"name": name, "level": level}
        if message is not None:
            fields["message"] = message
        if data is not None:
            fields["data"] = data
        self.record("event", **fields)

    def _open(self):
        rank, world, local = whereabouts()
        self.rank = rank
        name = os.path.join(self.folder, "rank%d.jsonl" % rank)
        try:
            self.file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except FileExistsError:
            # Another process of this rank has already written (for example a second program of the command): files are never shared.
            name = os.path.join(self.folder, "rank%d.%d.jsonl" % (rank, self.pid))
            self.file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        import socket

        first = {"v": 1, "type": "rank", "t": time.time(), "rank": rank, "host": socket.gethostname(), "pid": self.pid}
        if world is not None:
            first["worldSize"] = world
            self.fact(worldSize=world)
        if local is not None:
            first["localRank"] = local
        device = self.facts.get("device")
        if device is not None:
            first["device"] = device
        return [first]

    def flush(self):
        if not self.alive():
            return
        for tell in self.tellers:
            tell()
        with self.lock:
            self.last_flush = _clock()
            if not self.pending and not self.pending_facts:
                return
            try:
                lines = []
                if self.file is None:
                    lines.extend(self._open())
                if self.pending_facts:
                    lines.append({"v": 1, "type": "facts", "t": time.time(), "rank": self.rank, "facts": self.pending_facts})
                    self.pending_facts = {}
                pending, self.pending = self.pending, []
                text = [json.dumps(line, allow_nan=False, separators=(",", ":")) for line in lines]
                began = _clock()
                for line in pending:
                    text.append(self._line(line))
                data = ("\n".join(text) + "\n").encode()
                while data:
                    data = data[os.write(self.file, data) :]
                if pending:
                    self.line_cost = (_clock() - began) / len(pending)
            except Exception as problem:  # noqa: BLE001
                self.error("write: %s: %s" % (type(problem).__name__, problem))
                if self.file is None:
                    self.folder = None

    def _line(self, line):
        if isinstance(line, dict):
            line.setdefault("rank", self.rank)
            return json.dumps(line, allow_nan=False, separators=(",", ":"))
        step, epoch, start, duration, waited, samples, backward, optimizer, loss, stepped, compiled, weight = line
        if stepped and not compiled and epoch is not None and waited is not None and samples is not None:
            if backward and optimizer and (loss is None or loss - loss == 0):
                # Fast path for the usual fields.
                return (
                    '{"v":1,"type":"step","rank":%d,"step":%d,"epoch":%d,"startUs":%.1f,"durationUs":%.1f,'
                    '"dataWaitUs":%.1f,"backwardUs":%.1f,"optimizerUs":%.1f,"samples":%d%s%s}'
                    % (
                        self.rank,
                        step,
                        epoch,
                        (start - self.origin) * 1e6,
                        duration * 1e6,
                        waited * 1e6,
                        backward * 1e6,
                        optimizer * 1e6,
                        samples,
                        "" if loss is None else ',"loss":%.7g' % loss,
                        "" if weight == 1 else ',"weight":%d' % weight,
                    )
                )
        parts = ['{"v":1,"type":"step","rank":%d,"step":%d' % (self.rank, step)]
        if epoch is not None:
            parts.append('"epoch":%d' % epoch)
        parts.append('"startUs":%.1f,"durationUs":%.1f' % ((start - self.origin) * 1e6, duration * 1e6))
        if waited is not None:
            parts.append('"dataWaitUs":%.1f' % (waited * 1e6))
        if backward:
            parts.append('"backwardUs":%.1f' % (backward * 1e6))
        if optimizer:
            parts.append('"optimizerUs":%.1f' % (optimizer * 1e6))
        if samples is not None:
            parts.append('"samples":%d' % samples)
        if loss is not None and loss == loss and abs(loss) != float("inf"):
            parts.append('"loss":%r' % loss)
        if not stepped:
            parts.append('"optimizerStep":false')
        if compiled:
            parts.append('"compile":true')
        if weight > 1:
            parts.append('"weight":%d' % weight)
        return ",".join(parts) + "}"

    def end(self):
        if self.ended or not self.alive():
            return
        self.ended = True
        if self.file is None and self.steps == 0 and not self.pending:
            return
        fields = {"status": "failed" if self.failed else "ok", "seconds": time.time() - self.began}
        if self.failed:
            fields["message"] = self.failed
        self.record("end", **fields)
        self.flush()


def whereabouts():
    """Rank, world size and local rank: from torch.distributed or JAX where they run, else from the environment."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
            local = os.environ.get("LOCAL_RANK")
            return torch.distributed.get_rank(), torch.distributed.get_world_size(), int(local) if local else None
    except Exception:  # noqa: BLE001
        pass
    for rank, world, local in (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ):
        if os.environ.get(rank, "").isdigit():
            number = lambda name: int(os.environ[name]) if os.environ.get(name, "").isdigit() else None  # noqa: E731
            return int(os.environ[rank]), number(world), number(local)
    return 0, None, None


def process_start():
    """Start of this process in Unix seconds, including the start-up of the interpreter."""
    try:
        with open("/proc/self/stat") as stat:
            ticks = float(stat.read().rsplit(")", 1)[1].split()[19])
        with open("/proc/uptime") as uptime:
            return time.time() - (float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return recorder.began


def place_facts():
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    recorder.fact(
        pythonVersion=sys.version.split()[0],
        cores=cores,
        ompThreads=int(threads) if threads.isdigit() else None,
        visibleDevices=visible.split(",") if visible else None,
    )


class _AfterImport:
    """Import hook that calls a function once, right after a module has been imported."""

    def __init__(self, actions):
        self.actions = dict(actions)
        self.finding = threading.local()

    def find_spec(self, name, path=None, target=None):
        action = self.actions.get(name)
        if action is None or getattr(self.finding, "busy", False):
            return None
        import importlib.util

        self.finding.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.finding.busy = False
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        self.actions.pop(name, None)
        original = spec.loader.exec_module

        def exec_module(module):
            original(module)
            guarded("watching " + name)(action)(module)

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            recorder.error("watching %s: its loader cannot be wrapped" % name)
        return spec


recorder = Recorder(None)


def arm():
    """Called by sitecustomize. Installs the import hooks; files are opened with the first record."""
    global recorder
    folder = os.environ["WEFT_PROBE_DIR"]
    recorder = Recorder(folder)
    try:
        os.close(os.open(os.path.join(folder, "probe.loaded"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except OSError:
        pass

    def watcher(file, name, *args):
        """Imports the part of the probe when the framework is imported, not before."""

        def watch(module):
            import importlib

            found = getattr(importlib.import_module(file), name)
            (found(*args) if args else found)(module)

        return watch

    import weft_probe_side

    guarded("side work")(weft_probe_side.arm)()
    if os.environ.get("RANK"):
        import weft_probe_card

        guarded("hang card")(weft_probe_card.announce)()
    actions = {
        "logging": weft_probe_side.watch_logging,
        "torch": watcher("weft_probe_torch", "watch"),
        "torch.distributed.distributed_c10d": watcher("weft_probe_hang", "watch"),
        "torch.utils.data.dataloader": watcher("weft_probe_torch", "watch_data"),
        "torch.nn.parallel.distributed": watcher("weft_probe_ddp", "watch_ddp"),
        "torch.nn.parallel.data_parallel": watcher("weft_probe_ddp", "watch_wrapper", "dp"),
        "torch.distributed.fsdp.fully_sharded_data_parallel": watcher("weft_probe_ddp", "watch_wrapper", "fsdp"),
        "jax": watcher("weft_probe_jax", "watch"),
    }
    if os.environ.get("WEFT_PROBE_CONFIG", "1") != "0":
        actions["yaml"] = watcher("weft_probe_config", "watch")
    sys.meta_path.insert(0, _AfterImport(actions))

    def forget():
        recorder.folder = None

    if hasattr(os, "register_at_fork"):
        # A forked loader process is not a rank.
        os.register_at_fork(after_in_child=forget)

    import atexit

    atexit.register(lambda: guarded("end")(recorder.end)())
    previous = sys.excepthook

    def excepthook(kind, value, trace):
        recorder.failed = "%s: %s" % (kind.__name__, value)
        guarded("hang dump")(_dump_exception)(kind, value, trace)
        previous(kind, value, trace)

    sys.excepthook = excepthook


def _dump_exception(kind, value, trace):
    hang, card = sys.modules.get("weft_probe_hang"), sys.modules.get("weft_probe_card")
    if card is None or issubclass(kind, KeyboardInterrupt):
        return
    text = card.exception_of(kind, value, trace)
    if hang is None or not hang.raised(text):
        card.raised(text)


class step:
    """Annotates a step of a loop that the probe cannot detect: `with weft_probe.step(samples=256): ...`."""

    def __init__(self, samples=None, epoch=None, loss=None):
        self.samples, self.epoch, self.loss = samples, epoch, loss

    def __enter__(self):
        self.start = _clock()
        recorder.manual_steps = True
        return self

    def __exit__(self, kind, value, trace):
        if kind is None and recorder.alive():
            now = _clock()
            duration, compiled = now - self.start, compiled_since(self.start)
            if not compiled and not recorder.due(duration):
                recorder.steps += 1
                return False
            guarded("step")(first_step)()
            recorder.own = _clock() - now
            recorder.step(self.epoch, self.start, duration, None, self.samples, None, None, self.loss, True, compiled)
        return False


_last_compile = [float("-inf")]


def note_compile():
    _last_compile[0] = _clock()


def compiled_since(start):
    return _last_compile[0] >= start


_first = [True]


def first_step():
    """Records facts that are known at the first step: the initialization time and the placement."""
    if _first[0]:
        _first[0] = False
        side = sys.modules.get("weft_probe_side")
        if side is not None:
            side.begin()
        place_facts()
        recorder.fact(initSeconds=round(time.time() - process_start(), 3))
