"""Holistic Trace Analysis on one trace file: holistic_trace.py FILE RANK prints seconds, idle time and peak memory."""
import json
import logging
import resource
import sys
import time

logging.disable(logging.CRITICAL)
import numpy
import pandas
from hta.trace_analysis import TraceAnalysis

file, rank = sys.argv[1], int(sys.argv[2])
start = time.perf_counter()
analysis = TraceAnalysis(trace_files={rank: file}, trace_dir=".")
loaded = time.perf_counter()
temporal = analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_idle_time_breakdown(ranks=[rank], visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
analysis.get_queue_length_summary(ranks=[rank])
analysis.get_memory_bw_summary(ranks=[rank])
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "loadSeconds": loaded - start,
    "idleUs": int(temporal["idle_time(us)"][0]),
    "peakBytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "versions": {"numpy": numpy.__version__, "pandas": pandas.__version__},
}))
