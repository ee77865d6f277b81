"""The card of a rank: a small file in WEFT_PROBE_DIR/hang that says which process it is, written when the interpreter starts.
A sibling can then ask for the stacks with SIGUSR1, which a handler in C writes: also where the rank has not come to
torch.distributed yet, and where a call holds the interpreter lock and none of its threads runs."""

import json
import os
import sys

import weft_probe as probe

# The process that the card is about: programs that a rank starts inherit its environment.
_owner = "WEFT_HANG_OWNER"


_most_frames = 64


def frame_of(frame, line=None):
    code = frame.f_code
    return {"file": code.co_filename, "line": line or frame.f_lineno, "name": code.co_name}


def exception_of(kind, value, trace):
    """Type, message and frames of an exception, innermost frame first."""
    frames = []
    while trace is not None:
        frames.append(frame_of(trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return {"type": kind.__name__, "message": str(value)[:4000], "frames": frames[::-1][:_most_frames]}


def process_state(pid, started):
    """R, S, D, T ... as the kernel says, or "gone"; a process id that was given to another process is gone."""
    try:
        with open("/proc/%d/stat" % pid) as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
    except OSError:
        return "gone"
    return fields[0] if started is None or int(fields[19]) == started else "gone"


def _started():
    try:
        with open("/proc/self/stat") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return None


class Card:
    def __init__(self, folder, rank, world):
        self.folder = os.path.join(folder, "hang")
        os.makedirs(self.folder, exist_ok=True)
        self.rank, self.world, self.pid = rank, world, os.getpid()
        self.host = os.uname().nodename
        self.signal_file = None
        self.save(signal=self._register_signal())

    def write(self, name, content):
        target = os.path.join(self.folder, name)
        part = "%s.%d.part" % (target, os.getpid())
        with open(part, "w") as file:
            json.dump(content, file, default=str)
        os.replace(part, target)

    def save(self, **more):
        known = {"format": "weft.hang.rank", "rank": self.rank, "worldSize": self.world, "pid": self.pid}
        known.update(host=self.host, started=_started(), argv=getattr(sys, "argv", [])[:1], **more)
        self.write("rank%d.alive.json" % self.rank, known)

    def _register_signal(self):
        """SIGUSR1 writes the stacks in C, so that it works while the main thread waits in a collective."""
        import faulthandler
        import signal

        if signal.getsignal(signal.SIGUSR1) not in (signal.SIG_DFL, None):
            return False
        self.signal_file = open(os.path.join(self.folder, "rank%d.stacks.txt" % self.rank), "w")
        faulthandler.register(signal.SIGUSR1, file=self.signal_file, all_threads=True)
        if not faulthandler.is_enabled():
            # gloo aborts a process whose partner sent another number of bytes: no Python code runs after that.
            faulthandler.enable(file=self.signal_file)
        original = signal.signal

        def watched(number, handler):
            # A handler of the job's own takes the place of ours: the siblings must not call it.
            if number == signal.SIGUSR1 and os.getpid() == self.pid:
                probe.guarded("hang card")(self.save)(signal=False)
            return original(number, handler)

        watched.__doc__ = original.__doc__
        watched.__wrapped__ = original
        signal.signal = watched
        return True

    def others(self):
        """The cards of the other ranks on this host."""
        for name in sorted(os.listdir(self.folder))[:8192]:
            if not name.endswith(".alive.json"):
                continue
            try:
                with open(os.path.join(self.folder, name)) as file:
                    card = json.load(file)
                if card.get("host") == self.host and card.get("rank") != self.rank:
                    card["state"] = process_state(int(card["pid"]), card.get("started"))
                    yield card
            except (OSError, ValueError, KeyError):
                continue

    def siblings(self):
        return [{key: card.get(key) for key in ("rank", "pid", "state", "exit")} for card in self.others()]

    def wake_silent(self, since):
        """Asks ranks that have written nothing since a time for their stacks."""
        import signal

        def written(name):
            try:
                return os.stat(os.path.join(self.folder, name)).st_mtime > since
            except OSError:
                return False

        for card in self.others():
            if card.get("signal") is not True or card["state"] not in ("R", "S", "D") or card.get("exit") is not None:
                continue
            if not written("rank%d.json" % card["rank"]) and not written("rank%d.stacks.txt" % card["rank"]):
                os.kill(int(card["pid"]), signal.SIGUSR1)


_card = [None]


def _leave():
    """The process ends by itself: siblings can tell that from a death."""
    card = _card[0]
    if card is not None and card.pid == os.getpid():
        card.save(exit="failed" if probe.recorder.failed else "ok", steps=probe.recorder.steps_now())


def raised(text):
    """An exception before torch.distributed has started."""
    card = _card[0]
    if card is not None and card.pid == os.getpid():
        known = {"format": "weft.hang", "version": 1, "rank": card.rank, "worldSize": card.world, "pid": card.pid}
        card.write("rank%d.json" % card.rank, dict(known, host=card.host, reason="exception", raised=text))


def announce():
    """Called when the interpreter of a rank starts."""
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if os.environ.get(_owner, str(os.getpid())) != str(os.getpid()) or not rank.isdigit() or not world.isdigit():
        return
    if int(world) > 1 and os.environ.get("WEFT_HANG_SECONDS") != "0":
        os.environ[_owner] = str(os.getpid())
        _card[0] = Card(os.environ["WEFT_PROBE_DIR"], int(rank), int(world))

        import atexit

        atexit.register(probe.guarded("hang exit")(_leave))


def card_of(folder, rank, world):
    """The card of this process under the rank that torch.distributed knows."""
    known = _card[0]
    if known is None or known.pid != os.getpid() or known.rank != rank:
        known = _card[0] = Card(folder, rank, world)
    return known
