"""Writes a SQLite file in the documented schema of Nsight Systems from a Kineto trace, and prints values that SQL alone gives:
make_nsys.py TRACE.json OUT.sqlite. A second process with a second GPU repeats the work of stream 7 a little later."""
import json
import sqlite3
import sys

trace, out = sys.argv[1:]
# Decimal text, not floating point: nanoseconds must stay exact.
events = json.load(open(trace), parse_float=str)["traceEvents"]


def ns(value):
    whole, _, fraction = str(value).partition(".")
    return int(whole) * 1000 + int((fraction + "000")[:3])


db = sqlite3.connect(out)
db.executescript("""
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, totalMemory INTEGER, memoryBandwidth INTEGER, smCount INTEGER);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
  deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER,
  text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
""")
strings = {}


def text(value):
    if value not in strings:
        strings[value] = len(strings)
        db.execute("INSERT INTO StringIds VALUES (?, ?)", (strings[value], value))
    return strings[value]


first = min(ns(e["ts"]) for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "cuda_runtime"))
kinds = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
memory = {"Pageable": 0, "Pinned": 1, "Device": 2}


def add(pid, device, shift, wanted):
    for e in events:
        if e.get("ph") != "X" or not wanted(e):
            continue
        start = ns(e["ts"]) - first + shift
        end = start + ns(e["dur"])
        args = e.get("args", {})
        process, thread = pid << 24, (pid << 24) | (int(e["tid"]) & 0xFFFFFF if str(e["tid"]).isdigit() else 0)
        place = (start, end, device, 1, None, args.get("stream"), args.get("correlation"), process)
        if e["cat"] == "kernel":
            short = e["name"].split("(")[0][:40]
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", place + (text(e["name"]), text(short), None, 1, 1, 1, 1, None))
        elif e["cat"] == "gpu_memcpy":
            kind, source, target = e["name"].split()[1], e["name"].split("(")[1].split()[0], e["name"].split("-> ")[1].rstrip(")")
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", place + (args["bytes"], kinds[kind], None, memory[source], memory[target]))
        elif e["cat"] == "gpu_memset":
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?,?,?,?,?,?,?,?,?,?)", place + (0, args["bytes"]))
        elif e["cat"] in ("cuda_runtime", "cuda_driver"):
            name = e["name"] + ("_v7000" if e["cat"] == "cuda_runtime" else "")
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", (start, end, 0, thread, args.get("correlation"), text(name), 0, None))
        elif e["name"].startswith("ProfilerStep#"):
            name = "step " + e["name"].split("#")[1]
            db.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?,?,?,?,?,?)", (start, end, 59, None, None, None, name, thread, thread, None, 0))


used = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "user_annotation")
add(4711, 0, 0, lambda e: e.get("cat") in used)
add(4712, 1, 1_000_003, lambda e: e.get("cat") == "kernel" and e["args"]["stream"] == 7 or e.get("cat") in ("cuda_runtime", "cuda_driver"))
for gpu in (0, 1):
    db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, ?, 'NVIDIA H200', '', 0, 0, 132)", (gpu,))
db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1794826595000000007, '', '')")
db.commit()

everything = " UNION ALL ".join(
    "SELECT start, end, deviceId, streamId FROM CUPTI_ACTIVITY_KIND_" + kind for kind in ("KERNEL", "MEMCPY", "MEMSET")
)
busy = """WITH a AS (SELECT start, end, MAX(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM (%s) WHERE deviceId = ?) SELECT SUM(CASE WHEN before IS NULL OR start >= before THEN end - start WHEN end > before THEN end - before ELSE 0 END),
  MAX(end) - MIN(start) FROM a"""
result = []
for device in (0, 1):
    union, span = db.execute(busy % everything, (device,)).fetchone()
    kernels = db.execute(
        "SELECT s.value, COUNT(*), SUM(k.end - k.start), MAX(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName WHERE deviceId = ? GROUP BY 1 ORDER BY 1", (device,)
    ).fetchall()
    launches = db.execute(
        "SELECT COUNT(*), SUM(r.end - r.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND (r.globalTid >> 24) = (k.globalPid >> 24) WHERE k.deviceId = ?", (device,)
    ).fetchone()
    copies = db.execute("SELECT COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE deviceId = ?", (device,)).fetchone()
    result.append({"device": device, "busy": union, "span": span, "kernels": kernels, "launches": launches, "copies": copies})
steps = db.execute("SELECT CAST(substr(text, 6) AS INTEGER), end - start FROM NVTX_EVENTS ORDER BY start").fetchall()
print(json.dumps({"devices": result, "steps": steps}))
