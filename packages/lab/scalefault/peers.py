"""What two other tools say of the traces of ScaleFault's jobs: the recommendations of PyTorch's TensorBoard plugin, word for word in
short, and what HTA's tables show. HTA names no cause; its tables count as saying one where a share is above 10%.
    python peers.py DIR > peers.json      (pip install torch-tb-profiler HolisticTraceAnalysis)"""
import contextlib
import glob
import io as text_io
import json
import os
import re
import shutil
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

# Which faults a statement names. A statement that fits several faults counts for each of them.
NAMES = {
    "data loading": ["slow-loader", "loaders-recreated", "too-many-loaders"],
    "utilization": ["launch-bound", "optimizer-per-tensor"],
    "tensor cores": ["no-tensor-cores"],
    "communication": ["forgotten-no-sync", "small-buckets", "slow-link", "sync-batch-norm"],
    "memory": [],
    "host wait": ["launch-bound", "optimizer-per-tensor", "host-work", "item-every-step", "recompilation", "slow-loader"],
    "copies": ["unpinned-copies", "copy-back"],
    "short kernels": ["launch-bound", "optimizer-per-tensor"],
    "idle": [],
}
PATTERNS = {
    "data loading": r"DataLoader|input data",
    "utilization": r"GPU utilization is low|batch size",
    "tensor cores": r"Tensor Core",
    "communication": r"communication|gradient accumulation",
    "memory": r"memory usage|memory",
}


def named(statements):
    return sorted({fault for s in statements for fault in NAMES[s]})


def tensorboard(trace):
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler import RunLoader

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(trace, os.path.join(folder, "worker0.1700000000000.pt.trace.json.gz"))
        run = RunLoader("run", folder, io.Cache()).load()
        profile = next(iter(run.profiles.values()))
        advice = re.sub(r"<[^>]*>", "", str(profile.overview.get("recommendations", "")))
    says = [name for name, pattern in PATTERNS.items() if re.search(pattern, advice)]
    return {"advice": " ".join(advice.split())[:600], "says": says, "names": named(says)}


def hta(trace):
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: trace}, trace_dir="")
    says, values = [], {}
    time = analysis.get_temporal_breakdown(visualize=False)
    values["idle"] = float(time["idle_time_pctg"].iloc[0])
    values["non-compute"] = float(time["non_compute_time_pctg"].iloc[0])
    idle = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
    waits = idle.groupby("idle_category")["idle_time"].sum()
    values.update({k: float(v / max(1e-9, waits.sum()) * 100) for k, v in waits.items()})
    if values["idle"] >= 10:
        says.append("host wait" if values.get("host_wait", 0) >= 50 else "idle")
    if values["non-compute"] >= 10:
        says.append("copies")
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    short = float((launches["gpu_duration"] < launches["cpu_duration"]).mean() * 100)
    values["kernels shorter than their launch"] = short
    if short >= 50:
        says.append("short kernels")
    return {"values": {k: round(v, 2) for k, v in values.items()}, "says": says, "names": named(says)}


def main():
    found = {}
    for home in sorted(glob.glob(os.path.join(sys.argv[1], "*"))):
        traces = glob.glob(os.path.join(home, "runs/*/traces/*.json.gz"))
        if not traces:
            continue
        row = {}
        for name, tool in (("tensorboard", tensorboard), ("hta", hta)):
            try:
                with contextlib.redirect_stdout(text_io.StringIO()):
                    row[name] = tool(traces[0])
            except Exception as problem:  # noqa: BLE001 - told in the table
                row[name] = {"error": repr(problem)[:200], "says": [], "names": []}
        found[os.path.basename(home)] = row
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
