"""Writes a SQLite file in the schema of rocprofv3 (rocpd, version 3) from a Kineto trace, and prints values that SQL alone gives:
make_rocpd.py TRACE.json OUT.db. A second process repeats the work of stream 7 a little later on a GPU with the same number."""
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
schema = """
CREATE TABLE "rocpd_metadata{0}" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "tag" TEXT NOT NULL, "value" TEXT NOT NULL);
CREATE TABLE `rocpd_string{0}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "string" TEXT NOT NULL UNIQUE ON CONFLICT ABORT);
CREATE TABLE `rocpd_info_agent{0}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER, "pid" INTEGER,
  "type" TEXT CHECK ("type" IN ('CPU', 'GPU')), "absolute_index" INTEGER, "name" TEXT, "model_name" TEXT, "product_name" TEXT);
CREATE TABLE `rocpd_info_kernel_symbol{0}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER, "pid" INTEGER,
  "code_object_id" INTEGER, "kernel_name" TEXT, "display_name" TEXT);
CREATE TABLE `rocpd_event{0}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "category_id" INTEGER, "stack_id" INTEGER,
  "parent_stack_id" INTEGER, "correlation_id" INTEGER, "call_stack" JSONB DEFAULT "{{}}" NOT NULL, "extdata" JSONB DEFAULT "{{}}" NOT NULL);
CREATE TABLE `rocpd_region{0}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER, "pid" INTEGER, "tid" INTEGER,
  "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, "name_id" INTEGER NOT NULL, "event_id" INTEGER);
CREATE TABLE `rocpd_kernel_dispatch{0}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER, "pid" INTEGER, "tid" INTEGER,
  "agent_id" INTEGER NOT NULL, "kernel_id" INTEGER NOT NULL, "dispatch_id" INTEGER, "queue_id" INTEGER NOT NULL, "stream_id" INTEGER NOT NULL,
  "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, "event_id" INTEGER);
CREATE TABLE `rocpd_memory_copy{0}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER, "pid" INTEGER, "tid" INTEGER,
  "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, "name_id" INTEGER NOT NULL, "dst_agent_id" INTEGER, "src_agent_id" INTEGER, "size" INTEGER NOT NULL,
  "queue_id" INTEGER, "stream_id" INTEGER, "event_id" INTEGER);
CREATE VIEW "rocpd_kernel_dispatch_all{0}" AS SELECT * FROM `rocpd_kernel_dispatch{0}`;
"""
first = min(ns(e["ts"]) for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "cuda_runtime"))
calls = {"cudaLaunchKernel": "hipLaunchKernel", "cudaLaunchKernelExC": "hipExtLaunchKernel", "cudaMemcpyAsync": "hipMemcpyAsync"}
cpu, gpu = 0, 4


class Process:
    def __init__(self, suffix, pid):
        self.suffix, self.pid, self.ids = suffix, pid, {}
        db.executescript(schema.format(suffix))
        for agent, kind, product in ((cpu, "CPU", "AMD EPYC"), (gpu, "GPU", "AMD Instinct MI300X")):
            self.add("info_agent", None, 1, pid, kind, agent, "gfx942", "", product, id=agent)

    def add(self, table, *values, id=None):
        marks = ",".join("?" * (len(values) + 1))
        return db.execute(f'INSERT INTO "rocpd_{table}{self.suffix}" VALUES ({marks})', (id,) + values).lastrowid

    def named(self, table, name, *values):
        if (table, name) not in self.ids:
            self.ids[table, name] = self.add(table, None, *values)
        return self.ids[table, name]

    def string(self, text):
        return self.named("string", text, text)

    def event(self, category, stack, extdata="{}"):
        return self.add("event", None, self.string(category), stack, stack, 0, "{}", extdata)

    def write(self, shift, wanted):
        for e in events:
            if e.get("ph") != "X" or not wanted(e):
                continue
            args, name = e.get("args", {}), e["name"]
            start = ns(e["ts"]) - first + shift
            end, stack, tid = start + ns(e["dur"]), args.get("correlation"), e["tid"]
            if e["cat"] == "kernel":
                symbol = self.named("info_kernel_symbol", name, 1, self.pid, 1, name + ".kd", name)
                self.add("kernel_dispatch", None, 1, self.pid, 1, gpu, symbol, 1, 0, args["stream"], start, end, self.event("KERNEL_DISPATCH", stack))
            elif e["cat"] == "gpu_memcpy":
                to_host = name.split()[1].endswith("H")
                places = (cpu, gpu) if to_host else (gpu, cpu)
                text = self.string("MEMORY_COPY_DEVICE_TO_HOST" if to_host else "MEMORY_COPY_HOST_TO_DEVICE")
                self.add("memory_copy", None, 1, self.pid, 1, start, end, text, *places, args["bytes"], 0, args["stream"], self.event("MEMORY_COPY", stack))
            elif e["cat"] in ("cuda_runtime", "cuda_driver"):
                if end == start:
                    continue
                self.add("region", None, 1, self.pid, tid, start, end, self.string(calls.get(name, name)), self.event("HIP_RUNTIME_API_EXT", stack))
            elif name.startswith("ProfilerStep#"):
                mark = json.dumps({"message": "step " + name.split("#")[1]})
                self.add("region", None, 1, self.pid, tid, start, end, self.string("roctxThreadRangeA"), self.event("MARKER_CORE_RANGE_API", None, mark))


used = ("kernel", "gpu_memcpy", "cuda_runtime", "cuda_driver", "user_annotation")
suffixes = ("_0193_7a", "_0193_7b")
Process(suffixes[0], 4711).write(0, lambda e: e.get("cat") in used)
Process(suffixes[1], 4712).write(
    1_000_003, lambda e: e.get("cat") == "kernel" and e["args"]["stream"] == 7 or e.get("cat") in ("cuda_runtime", "cuda_driver")
)
db.commit()

busy = """WITH a AS (SELECT start, end, MAX(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM (SELECT start, end FROM "rocpd_kernel_dispatch{0}" UNION ALL SELECT start, end FROM "rocpd_memory_copy{0}"))
  SELECT SUM(CASE WHEN before IS NULL OR start >= before THEN end - start WHEN end > before THEN end - before ELSE 0 END), MAX(end) - MIN(start) FROM a"""
result = []
for device, suffix in enumerate(suffixes):
    union, span = db.execute(busy.format(suffix)).fetchone()
    kernels = db.execute(
        'SELECT s.display_name, COUNT(*), SUM(k.end - k.start), MAX(k.end - k.start) FROM "rocpd_kernel_dispatch{0}" k JOIN "rocpd_info_kernel_symbol{0}" s ON s.id = k.kernel_id GROUP BY 1 ORDER BY 1'.format(suffix)
    ).fetchall()
    launches = db.execute(
        'SELECT COUNT(*), SUM(r.end - r.start) FROM "rocpd_kernel_dispatch{0}" k JOIN "rocpd_event{0}" e ON e.id = k.event_id JOIN "rocpd_event{0}" c ON c.stack_id = e.stack_id JOIN "rocpd_region{0}" r ON r.event_id = c.id'.format(suffix)
    ).fetchone()
    copies = db.execute('SELECT COUNT(*), SUM(end - start) FROM "rocpd_memory_copy{0}"'.format(suffix)).fetchone()
    result.append({"device": device, "busy": union, "span": span, "kernels": kernels, "launches": launches, "copies": copies})
steps = db.execute(
    """SELECT CAST(substr(json_extract(e.extdata, '$.message'), 6) AS INTEGER), r.end - r.start FROM "rocpd_region{0}" r JOIN "rocpd_event{0}" e ON e.id = r.event_id
  WHERE json_extract(e.extdata, '$.message') IS NOT NULL ORDER BY r.start""".format(suffixes[0])
).fetchall()
print(json.dumps({"devices": result, "steps": steps}))
