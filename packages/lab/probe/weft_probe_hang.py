"""Hang dumps: when a rank of torch.distributed makes no progress, when it raises, on SIGUSR1, or when another rank of the
run asks for it, writes one JSON file per rank into WEFT_PROBE_DIR/hang: Python stacks, the flight recorder, process
groups, pending point-to-point calls and the state of the sibling processes. `weft hang` reads them (docs/hangs.md)."""

import collections
import json
import os
import sys
import threading
import time

import weft_probe as probe
from weft_probe import guarded
from weft_probe_card import card_of, exception_of, frame_of

_most_dumps = 8
_most_frames = 64
_most_threads = 64

# The last point-to-point calls: gloo's flight recorder does not record them. `_counts`: calls so far by kind and partner;
# `_requests`: records of non-blocking calls by the identity of what they returned, until it is waited for.
_calls = collections.deque(maxlen=256)
_counts = collections.Counter()
_requests = {}
_most_requests = 4096
# The last collectives with a root, which no recorder names, and the members of the first groups that were made.
_rooted = collections.deque(maxlen=64)
_made = []
_most_made = 256
_number = [0]
_watcher = [None]
_inside = threading.local()


def limit_seconds():
    """Seconds without progress after which a rank writes a dump; 0 turns it off."""
    try:
        value = float(os.environ.get("WEFT_HANG_SECONDS", "120"))
    except ValueError:
        return 120.0
    return value if 0 <= value < 1e9 else 120.0


def _stack(frame):
    """Frames of one thread, innermost first."""
    found = []
    while frame is not None and len(found) < _most_frames:
        found.append(frame_of(frame))
        frame = frame.f_back
    return found


def _stacks():
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    mine = threading.get_ident()
    main = threading.main_thread().ident
    threads = []
    for ident, frame in list(sys._current_frames().items()):
        if ident != mine and len(threads) < _most_threads:
            threads.append({"thread": names.get(ident, str(ident)), "main": ident == main, "frames": _stack(frame)})
    return threads


def _handling():
    """The exception that the main thread handles: `except` and `finally` may wait for others."""
    current = getattr(sys, "_current_exceptions", dict)().get(threading.main_thread().ident)
    if isinstance(current, tuple):
        current = current[1]
    return exception_of(type(current), current, current.__traceback__) if isinstance(current, BaseException) else None


def _flight_recorder(c10d):
    """The flight recorder's own dump. The pickle is one that this process has just made."""
    import pickle

    for name, args in (("_dump_nccl_trace", (True, True, False)), ("_dump_fr_trace", (True, True, False))):
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        try:
            content = pickle.loads(dump(*args))
        except Exception as problem:  # noqa: BLE001
            probe.recorder.error("flight recorder: %r" % problem)
            continue
        if content and (content.get("entries") or name == "_dump_fr_trace"):
            return content
    return None


def _progress(c10d):
    """Last enqueued and completed collective of every group, without the entries: cheap enough to be polled."""
    dump = getattr(c10d, "_dump_fr_trace_json", None)
    try:
        return bytes(dump(False, False)) if dump is not None else None
    except Exception:  # noqa: BLE001
        return None


def collectives():
    """Collectives that this process has issued so far; None where no recorder counts them."""
    c10d = getattr(sys.modules.get("torch._C"), "_distributed_c10d", None)
    try:
        status = json.loads(_progress(c10d) or b"null")["pg_status"]
        return sum(max(0, int(group["last_enqueued_collective"])) for group in status.values())
    except Exception:  # noqa: BLE001
        return None


def _groups():
    module = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(module, "_world", None)
    found = {}
    for group, ranks in list(getattr(world, "pg_group_ranks", {}).items()):
        name = getattr(world, "pg_names", {}).get(group)
        if name is not None:
            found[str(name)] = {"desc": str(getattr(group, "group_desc", "")), "ranks": sorted(ranks)}
    return found


class Watcher(threading.Thread):
    def __init__(self, folder, c10d):
        super().__init__(name="weft-hang", daemon=True)
        self.c10d = c10d
        self.rank, self.world, _ = probe.whereabouts()
        self.card = card_of(folder, self.rank, self.world)
        self.folder, self.host = self.card.folder, self.card.host
        self.limit = limit_seconds()
        self.dumps = 0
        self.last_request = time.time()
        self.lock = threading.Lock()
        self.leaving = False
        self.since = time.monotonic()

    def dump(self, reason, raised=None):
        with self.lock:
            if self.dumps >= _most_dumps and raised is None:
                return
            self.dumps += 1
            stalled = time.monotonic() - self.since
            torch_loop = getattr(sys.modules.get("weft_probe_torch"), "loop", None)
            known = {
                "format": "weft.hang",
                "version": 1,
                "rank": self.rank,
                "worldSize": self.world,
                "pid": os.getpid(),
                "host": self.host,
                "time": time.time(),
                "reason": reason,
                "stalledSeconds": stalled if self.limit and stalled > self.limit else None,
                "steps": probe.recorder.steps_now(),
                "epoch": getattr(torch_loop, "epoch", None),
                "stepsPerEpoch": probe.recorder.facts.get("stepsPerEpoch"),
                "raised": raised,
                "stacks": _stacks(),
                "groups": _groups(),
                "pointToPoint": [dict(call) for call in list(_calls)],
                "rooted": [dict(call) for call in list(_rooted)],
                "made": [dict(group) for group in list(_made)],
                "handling": _handling(),
                "siblings": self.card.siblings(),
            }
            # The first dump of the recorder imports modules for seconds: what is known without it is written before.
            if "torch._dynamo" not in sys.modules:
                self.card.write("rank%d.json" % self.rank, known)
            self.card.write("rank%d.json" % self.rank, {**known, "flightRecorder": _flight_recorder(self.c10d)})

    def ask_others(self):
        with open(os.path.join(self.folder, "request"), "w") as file:
            file.write("%f\n" % time.time())

    def requested(self):
        try:
            when = os.stat(os.path.join(self.folder, "request")).st_mtime
        except OSError:
            return False
        if when <= self.last_request:
            return False
        self.last_request = when
        return True

    def token(self):
        loop = getattr(sys.modules.get("weft_probe_torch"), "loop", None)
        return (probe.recorder.steps_now(), getattr(loop, "all_updates", 0), _number[0], _progress(self.c10d))

    def run(self):
        period = min(2.0, max(0.1, self.limit / 8)) if self.limit else 1.0
        last, dumped_at = None, None
        signaled, woken = 0, True
        while not self.leaving and probe.recorder.folder is not None:
            time.sleep(period)
            try:
                signal_file = self.card.signal_file
                if signal_file is not None:
                    size = os.fstat(signal_file.fileno()).st_size
                    if size != signaled:
                        signaled = size
                        self.dump("signal")
                if self.requested():
                    self.dump("requested")
                token = self.token()
                now = time.monotonic()
                if token != last:
                    last, self.since, dumped_at, woken = token, now, None, True
                elif self.limit and now - self.since > self.limit and dumped_at is None:
                    dumped_at, asked, woken = now, time.time(), False
                    self.ask_others()
                    self.dump("stalled")
                elif not woken and now - dumped_at > 2 * period + 1:
                    # Ranks whose threads run have answered by now.
                    woken = True
                    self.card.wake_silent(asked - period)
            except Exception as problem:  # noqa: BLE001
                probe.recorder.error("hang: %s: %s" % (type(problem).__name__, problem))

    def leave(self):
        """The process ends by itself: the siblings and `weft hang` can tell that from a death."""
        self.leaving = True
        failed = probe.recorder.failed
        self.card.save(exit="failed" if failed else "ok", steps=probe.recorder.steps_now())


def raised(text):
    """Called by the exception hook of the probe; False where no watcher runs."""
    watcher = _watcher[0]
    if watcher is not None:
        watcher.dump("exception", raised=text)
    return watcher is not None


def _site():
    """The caller of torch.distributed outside of PyTorch."""
    frame = sys._getframe(2)
    while frame is not None and "/torch/" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame_of(frame) if frame is not None else None


def _peer(module, name, args, kwargs):
    """The partner of a point-to-point call as a rank of the world; batched calls name it as a rank of their group."""
    peer = kwargs.get(name, args[1] if len(args) > 1 else None)
    if peer is None and isinstance(kwargs.get("group_" + name), int):
        peer = kwargs["group_" + name]
        if kwargs.get("group") is not None:
            peer = module.get_global_rank(kwargs["group"], peer)
    return peer if isinstance(peer, int) else None


def _note_waits(work):
    """Waits for non-blocking calls: a blocked one is a call that has not been done."""
    original = work.wait

    def wait(self, *args, **kwargs):
        record = _requests.pop(id(self), None) if _requests else None
        if record is None:
            return original(self, *args, **kwargs)
        record.update(done=False, site=_site())
        _number[0] += 1
        result = original(self, *args, **kwargs)
        record["done"] = True
        _number[0] += 1
        return result

    wait.__doc__ = original.__doc__
    work.wait = wait


def _note_root(module, name, position, key):
    """The root of a collective: the argument `key`, at `position`."""
    original = getattr(module, name, None)
    if original is None:
        return

    def call(*args, **kwargs):
        if _watcher[0] is None:
            return original(*args, **kwargs)
        root = kwargs.get(key, args[position] if len(args) > position else kwargs.get("group_" + key))
        record = {"op": name, "root": root if isinstance(root, int) else None, "done": False, "site": _site()}
        _rooted.append(record)
        result = original(*args, **kwargs)
        record["done"] = True
        return result

    call.__name__ = name
    call.__doc__ = original.__doc__
    call.__wrapped__ = original
    setattr(module, name, call)


def _note_group(module):
    """Members of new groups: ranks that make them in another order wait for each other."""
    original = getattr(module, "new_group", None)
    if original is None:
        return

    def new_group(ranks=None, *args, **kwargs):
        record = None
        # With local synchronization only the members call.
        if _watcher[0] is not None and len(_made) < _most_made and not kwargs.get("use_local_synchronization"):
            members = sorted(int(rank) for rank in ranks)[:4096] if ranks is not None else []
            record = {"ranks": members, "done": False, "site": _site()}
            _made.append(record)
        result = original(ranks, *args, **kwargs)
        if record is not None:
            record["done"] = True
        return result

    new_group.__doc__ = original.__doc__
    new_group.__wrapped__ = original
    module.new_group = new_group


def _note_call(module, name):
    original = getattr(module, name, None)
    if original is None:
        return

    peer_name = "dst" if "send" in name else "src"

    def call(*args, **kwargs):
        # A blocking call may issue the non-blocking one: it is one call.
        if _watcher[0] is None or getattr(_inside, "call", False):
            return original(*args, **kwargs)
        probe.recorder.fact(pointToPoint=True)
        _number[0] += 1
        peer = _peer(module, peer_name, args, kwargs)
        _counts[peer_name, peer] += 1
        record = {"op": name, "peer": peer, "number": _number[0], "index": _counts[peer_name, peer], "done": False}
        record.update(tag=kwargs.get("tag", 0) if isinstance(kwargs.get("tag", 0), int) else None, site=_site())
        _calls.append(record)
        _inside.call = True
        try:
            result = original(*args, **kwargs)
        finally:
            _inside.call = False
        # A non-blocking call has only been issued; whether it has finished is not known.
        record["done"] = True if name in ("send", "recv") else None
        if record["done"] is None and result is not None and len(_requests) < _most_requests:
            _requests[id(result)] = record
        _number[0] += 1
        return result

    call.__name__ = name
    call.__doc__ = original.__doc__
    call.__wrapped__ = original
    setattr(module, name, call)


def watch(module):
    """Called after torch.distributed.distributed_c10d was imported."""
    for name in ("send", "recv", "isend", "irecv"):
        _note_call(module, name)
    for name, position, key in (("broadcast", 1, "src"), ("reduce", 1, "dst"), ("gather", 2, "dst"), ("scatter", 2, "src")):
        _note_root(module, name, position, key)
    guarded("groups")(_note_group)(module)
    if hasattr(module, "Work"):
        guarded("waits")(_note_waits)(module.Work)
    original = module.init_process_group

    def init_process_group(*args, **kwargs):
        # Before the call, which waits for all ranks; the environment knows the rank then, or only the group afterwards.
        if os.environ.get("RANK", "").isdigit():
            guarded("hang watcher")(_start)()
        result = original(*args, **kwargs)
        guarded("hang watcher")(_start)()
        return result

    init_process_group.__doc__ = original.__doc__
    init_process_group.__wrapped__ = original
    module.init_process_group = init_process_group


def _start():
    if probe.recorder.folder is None or (_watcher[0] is not None and _watcher[0].rank == probe.whereabouts()[0]):
        return
    if _watcher[0] is not None:
        _watcher[0].leaving = True
    torch = sys.modules["torch"]
    watcher = Watcher(probe.recorder.folder, torch._C._distributed_c10d)
    _watcher[0] = watcher
    watcher.start()

    import atexit

    atexit.register(guarded("hang exit")(watcher.leave))
