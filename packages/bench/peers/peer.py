"""The protocol of a peer: one JSON request per line on standard input, one answer per line on standard output.

`serve(make, versions)` answers "versions", "prepare" (calls make(row), which returns a dict with "call" and optionally
"check", "info", "finish" and "scale"), "time" and "release". The same protocol in TypeScript is src/suites/contestant.ts.
"""
import json
import math
import os
import sys
import time

# Compilers write to standard output as they like: answers go through a descriptor of their own.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def time_calls(row, seconds, least):
    """Milliseconds per call, one sample for every group of calls that lasts at least 5 ms."""
    finish, scale = row.get("finish", lambda: None), row.get("scale", 1)

    def run(count):
        start = time.perf_counter()
        for _ in range(count):
            row["call"]()
        finish()
        return (time.perf_counter() - start) * 1e3 / count

    group = max(1, math.ceil(5 / max(run(1), 1e-4)))
    samples = []
    end = time.perf_counter() + seconds
    while len(samples) < least or time.perf_counter() < end:
        samples.append(scale * run(group))
    return samples


def serve(make, versions, released=lambda: None):
    ready = {}

    def prepare(request):
        row = make(request["row"])
        ready[request["row"]] = row
        time_calls(row, 0.05, 2)
        check = [x if math.isfinite(x) else None for x in row.get("check", [])]  # JSON has no NaN
        return {"check": check, "info": row.get("info", {})}

    def release(request):
        ready.pop(request["row"], None)
        released()
        return {}

    handlers = {
        "versions": lambda request: versions,
        "prepare": prepare,
        "time": lambda r: {"samples": time_calls(ready[r["row"]], r["seconds"], r["least"])},
        "release": release,
    }
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request["do"]](request)
        except Exception as error:  # the suite reports it and continues with the next row
            answer = {"error": f"{type(error).__name__}: {error}"[:600]}
        _answers.write(json.dumps({"id": request["id"], **answer}) + "\n")
        _answers.flush()
