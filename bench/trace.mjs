// Trace analysis: speed against Holistic Trace Analysis on the same file and machine (where Python has it), and speed and
// memory on a generated trace of 1 GB. Checks the numbers before it reports a time. Writes bench/results/trace.json.
//   node bench/trace.mjs [--trace FILE] [--gigabytes 1] [--repeats 3]
// WEFT_HTA_PYTHON names a Python that can import hta; without it the peer is left out and said to be.
import { spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, rmSync, statSync, writeFileSync, writeSync } from "node:fs";
import { cpus, loadavg, tmpdir, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const { values } = parseArgs({
  options: {
    trace: { type: "string" },
    gigabytes: { type: "string", default: "1" },
    repeats: { type: "string", default: "3" },
  },
});
const repeats = Number(values.repeats);
const shared = process.env.WEFT_SHARED ?? join(root, "../shared");
const trace = values.trace ?? join(shared, "oracles/traces/df_index_resolver_rank1.json.gz");

/** A Kineto trace of a training loop: operators, launches, kernels, collectives and flow events, pretty-printed as Kineto does. */
function generate(file, bytes) {
  const out = openSync(file, "w");
  let written = 0;
  const put = (text) => {
    written += writeSync(out, text);
  };
  put(
    '{\n  "schemaVersion": 1,\n  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},\n  "traceEvents": [\n',
  );
  let t = 1_700_000_000_000_000;
  let id = 0;
  let kernels = 0;
  const event = (cat, name, pid, tid, ts, dur, args) =>
    `  {\n    "ph": "X", "cat": "${cat}", "name": "${name}", "pid": ${pid}, "tid": ${tid},\n    "ts": ${ts}, "dur": ${dur},\n    "args": {\n      ${args}\n    }\n  },\n`;
  while (written < bytes) {
    let piece = "";
    for (let i = 0; i < 400; i++) {
      id++;
      const name = `void at::native::vectorized_elementwise_kernel<4, at::native::Functor${id % 97}<float>, at::detail::Array<char*, 3> >(int, float)`;
      piece += event(
        "cpu_op",
        `aten::op${id % 211}`,
        4711,
        4711,
        t,
        30,
        `"External id": ${id},"Ev Idx": ${id}, "Input Dims": [[64, 1024], [1024, 1024]], "Input type": ["float", "float"], "Fwd thread id": 0, "Sequence number": ${id}`,
      );
      piece += event(
        "cuda_runtime",
        "cudaLaunchKernel",
        4711,
        4711,
        t + 5,
        8,
        `"External id": ${id}, "cbid": 211, "correlation": ${id}`,
      );
      const comm = id % 50 === 0;
      kernels++;
      piece += event(
        "kernel",
        comm ? "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)" : name,
        0,
        comm ? 20 : 7,
        t + 20,
        comm ? 60 : 25,
        `"External id": ${id}, "queued": 0, "device": 0, "context": 1, "stream": ${comm ? 20 : 7}, "correlation": ${id}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 10.5, "warps per SM": 42.1, "grid": [1024, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 60`,
      );
      piece += `  {\n    "ph": "s", "id": ${id}, "pid": 4711, "tid": 4711, "ts": ${t + 5},\n    "cat": "ac2g", "name": "ac2g"\n  },\n`;
      t += 40;
    }
    put(piece);
  }
  put('  {"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "ts": 0, "args": {"name": "python"}}\n  ]\n}\n');
  closeSync(out);
  return kernels;
}

/** Seconds and peak memory of one analysis in a process of its own; the interpreter alone is measured the same way. */
function ours(file) {
  const script = file
    ? `const { analyzeTraces } = await import(${JSON.stringify(join(root, "packages/lab/dist/trace/index.js"))});
       const t = performance.now(); const r = await analyzeTraces([${JSON.stringify(file)}]);
       const k = r.ranks[0];
       console.log(JSON.stringify({ seconds: (performance.now() - t) / 1000, peakBytes: process.resourceUsage().maxRSS * 1024,
         bytes: k.bytes, events: k.events, idleUs: k.idleUs, computeUs: k.computeUs, spanUs: k.spanUs, kernels: k.kernels.reduce((n, x) => n + x.count, 0) }));`
    : "console.log(JSON.stringify({ peakBytes: process.resourceUsage().maxRSS * 1024 }));";
  const done = spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" });
  if (done.status !== 0) throw new Error(done.stderr);
  return JSON.parse(done.stdout);
}

const peerScript = `
import sys, json, time, logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
t0 = time.perf_counter()
a = TraceAnalysis(trace_files={RANK: FILE}, trace_dir=".")
t1 = time.perf_counter()
temporal = a.get_temporal_breakdown(visualize=False)
a.get_comm_comp_overlap(visualize=False)
a.get_idle_time_breakdown(ranks=[RANK], visualize=False)
a.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
a.get_queue_length_summary(ranks=[RANK])
a.get_memory_bw_summary(ranks=[RANK])
t2 = time.perf_counter()
import resource, numpy, pandas
print(json.dumps({"seconds": t2 - t0, "loadSeconds": t1 - t0, "idleUs": int(temporal["idle_time(us)"][0]),
  "peakBytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
  "versions": {"numpy": numpy.__version__, "pandas": pandas.__version__}}))
`;

function peer(file, rank) {
  const python = process.env.WEFT_HTA_PYTHON;
  if (!python) return "WEFT_HTA_PYTHON is not set: Holistic Trace Analysis was not measured";
  const script = peerScript.replaceAll("RANK", String(rank)).replaceAll("FILE", JSON.stringify(file));
  const done = spawnSync(python, ["-c", script], { encoding: "utf8" });
  if (done.status !== 0) return `Holistic Trace Analysis could not run: ${done.stderr.trim().split("\n").pop()}`;
  return JSON.parse(done.stdout.trim().split("\n").pop());
}

const best = (samples) => samples.reduce((a, b) => (b.seconds < a.seconds ? b : a));
const result = {
  benchmark: "trace",
  when: new Date().toISOString(),
  machine: { cpu: cpus()[0]?.model, cores: cpus().length, memoryBytes: totalmem() },
  versions: { node: process.version },
};

/** Both on one file, each in a process of its own; the two must agree before their times are compared. */
function compare(file, rank) {
  const samples = Array.from({ length: repeats }, () => ours(file));
  const peers = [];
  for (let i = 0; i < repeats; i++) {
    const sample = peer(file, rank);
    peers.push(sample);
    if (typeof sample === "string") break;
    if (sample.idleUs !== samples[0].idleUs)
      throw new Error(`the two disagree: idle ${samples[0].idleUs} against ${sample.idleUs} us`);
  }
  const measured = peers.filter((p) => typeof p !== "string");
  const ratio = measured.length > 0 ? best(measured).seconds / best(samples).seconds : null;
  const rate = samples[0].bytes / 1e6 / best(samples).seconds;
  console.log(`${file.split("/").pop()}: ${best(samples).seconds.toFixed(2)} s (${rate.toFixed(0)} MB/s of JSON)`);
  console.log(
    ratio === null
      ? peers[0]
      : `Holistic Trace Analysis: ${best(measured).seconds.toFixed(2)} s, ${ratio.toFixed(1)} times as long`,
  );
  return {
    file: file.split("/").pop(),
    bytes: samples[0].bytes,
    load: loadavg()[0],
    ours: samples,
    peer: peers,
    ratio,
  };
}

result.compared = [];
if (existsSync(trace)) result.compared.push(compare(trace, 1));
else console.log(`${trace} is not here: no comparison on it`);

const folder = join(tmpdir(), "weft-bench");
mkdirSync(folder, { recursive: true });
const big = join(folder, "big.json");
try {
  const medium = join(folder, "generated-200MB.json");
  generate(medium, 2e8);
  result.compared.push(compare(medium, 0));
  rmSync(medium);
  const kernels = generate(big, Number(values.gigabytes) * 1e9);
  const empty = ours(null).peakBytes;
  const samples = Array.from({ length: repeats }, () => ours(big));
  for (const sample of samples) {
    if (sample.kernels !== kernels) throw new Error(`${sample.kernels} kernels were found of ${kernels}`);
  }
  const peak = Math.max(...samples.map((s) => s.peakBytes));
  result.large = {
    bytes: statSync(big).size,
    interpreterBytes: empty,
    peakBytes: peak,
    aboveInterpreterBytes: peak - empty,
    bytesPerSecond: samples[0].bytes / best(samples).seconds,
    samples,
  };
  console.log(
    `${(result.large.bytes / 1e9).toFixed(2)} GB: ${best(samples).seconds.toFixed(1)} s, ${(result.large.bytesPerSecond / 1e6).toFixed(0)} MB/s, ${(result.large.aboveInterpreterBytes / 1e6).toFixed(0)} MB above the interpreter`,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
mkdirSync(join(root, "bench/results"), { recursive: true });
writeFileSync(join(root, "bench/results/trace.json"), `${JSON.stringify(result, null, 1)}\n`);
