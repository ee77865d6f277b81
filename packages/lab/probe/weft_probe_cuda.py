"""GPUs: recognizes training steps that are replays of a CUDA graph, and samples utilization, memory, power, energy and clocks
of this rank's device through NVML (libnvidia-ml, by ctypes) once per second in a thread of its own."""

import ctypes
import threading

import weft_probe as probe
from weft_probe import guarded

_period = 1.0
_captured = [False]  # an optimizer step was recorded into the graph that is being captured


def capturing(torch):
    """Whether the current stream records a CUDA graph: then nothing may be read from the device."""
    try:
        return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    except Exception:  # noqa: BLE001
        return False


def note_captured_update():
    _captured[0] = True


def watch_graphs(module, captures, replayed):
    """Calls `captures` before a graph is captured, and `replayed` after each replay of one that contains an optimizer step."""
    graph = getattr(module, "CUDAGraph", None)
    if graph is None or not hasattr(graph, "replay"):
        return
    capture_begin, capture_end, replay = graph.capture_begin, graph.capture_end, graph.replay

    def begin(self, *args, **kwargs):
        guarded("capture")(captures)()
        return capture_begin(self, *args, **kwargs)

    def end(self, *args, **kwargs):
        result = capture_end(self, *args, **kwargs)
        if _captured[0]:
            _captured[0] = False
            self._weft_updates = True
        return result

    def run(self, *args, **kwargs):
        result = replay(self, *args, **kwargs)
        if getattr(self, "_weft_updates", False):
            replayed()
        return result

    begin.__doc__, end.__doc__, run.__doc__ = capture_begin.__doc__, capture_end.__doc__, replay.__doc__
    graph.capture_begin, graph.capture_end, graph.replay = begin, end, run


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Nvml:
    """One device. A reading that the driver does not support is left out."""

    def __init__(self, uuid=None, index=0):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self.library.nvmlInit_v2())
        self.handle = ctypes.c_void_p()
        if uuid:
            name = uuid if uuid.startswith(("GPU-", "MIG-")) else "GPU-" + uuid
            found = self.library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self.handle))
        else:
            found = self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.handle))
        self._check(found)
        number = self._unsigned("nvmlDeviceGetIndex")
        self.index = index if number is None else number

    @staticmethod
    def _check(code):
        if code != 0:
            raise OSError("NVML returned %d" % code)

    def _unsigned(self, function, *args, kind=ctypes.c_uint):
        value = kind()
        call = getattr(self.library, function, None)
        if call is None or call(self.handle, *args, ctypes.byref(value)) != 0:
            return None
        return value.value

    def read(self):
        """One device of a `sample` record (docs/lab-format.md)."""
        found = {"index": self.index}
        use, memory = _Utilization(), _Memory()
        if self.library.nvmlDeviceGetUtilizationRates(self.handle, ctypes.byref(use)) == 0:
            # NVML's "memory" is the share of time in which memory was read or written.
            found.update(utilizationPercent=use.gpu, memoryActivePercent=use.memory)
        if self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)) == 0:
            found.update(memoryUsedBytes=memory.used, memoryTotalBytes=memory.total)
        milliwatts = self._unsigned("nvmlDeviceGetPowerUsage")
        millijoules = self._unsigned("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
        found.update(
            powerWatts=None if milliwatts is None else milliwatts / 1e3,
            energyJoules=None if millijoules is None else millijoules / 1e3,
            smClockMHz=self._unsigned("nvmlDeviceGetClockInfo", 1),
            memoryClockMHz=self._unsigned("nvmlDeviceGetClockInfo", 2),
            temperatureC=self._unsigned("nvmlDeviceGetTemperature", 0),
        )
        return {key: value for key, value in found.items() if value is not None}


class _Sampling(threading.Thread):
    def __init__(self, device):
        super().__init__(name="weft-nvml", daemon=True)
        self.device = device
        self.first = device.read()
        self.steps = probe.recorder.steps_now()
        self.leaving = threading.Event()

    def run(self):
        while not self.leaving.wait(_period):
            if probe.recorder.folder is not None:
                guarded("nvml")(self.sample)()

    def sample(self):
        probe.recorder.record("sample", devices=[self.device.read()])

    def finish(self):
        """Energy of the run since its first step, and per step."""
        self.leaving.set()
        if probe.recorder.folder is None:
            return
        last = self.device.read()
        if "energyJoules" in last and "energyJoules" in self.first:
            spent = last["energyJoules"] - self.first["energyJoules"]
            steps = probe.recorder.steps_now() - self.steps
            probe.recorder.fact(energyJoules=round(spent, 3), energyJoulesPerStep=round(spent / steps, 6) if steps else None)


_sampling = []


def start_sampling(uuid, index):
    if _sampling:
        return
    import atexit

    thread = _Sampling(Nvml(uuid, index))
    _sampling.append(thread)
    thread.start()
    # Registered after the end hook of the probe, therefore called before it.
    atexit.register(guarded("nvml")(thread.finish))


def device_facts(torch, device):
    """Facts about this rank's device; its sampling begins."""
    properties = torch.cuda.get_device_properties(device)
    uuid = str(getattr(properties, "uuid", "")) or None
    guarded("nvml")(start_sampling)(uuid, device.index or 0)
    facts = {
        "deviceName": torch.cuda.get_device_name(device),
        "deviceCount": torch.cuda.device_count(),
        "deviceUuid": uuid,
        "deviceMemoryBytes": properties.total_memory,
        "cudaVersion": torch.version.cuda,
        "tf32": bool(torch.backends.cuda.matmul.allow_tf32),
    }
    try:
        facts["ncclVersion"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    except Exception:  # noqa: BLE001
        pass
    return facts
