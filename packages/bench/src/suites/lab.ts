// Speed of the lab: `weft analyze` on 1,000 runs, the analysis of traces against Holistic Trace Analysis, and the cost of
// the probe in a PyTorch training loop. Results are checked before a time is reported.
import { spawnSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { mean, median } from "@weft/formats/stats";
import { benchSettings } from "../settings.js";
import type { Context, Suite } from "./context.js";
import { writeDumps } from "./lab-hang.js";
import { entryPoint } from "./main-path.js";
import { findPeer, peerScript, pythonLines } from "./peers.js";
import { repository } from "./record.js";
import { weftCommand } from "./weft-runs.js";

function inScratch<T>(name: string, body: (folder: string) => T): T {
  const folder = mkdtempSync(join(tmpdir(), `weft-bench-${name}-`));
  try {
    return body(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const epochs = 20;

/** Studies of two runs with 1 and 4 devices, 3.5 times as fast. */
function writeStudies(folder: string, runs: number): void {
  const yaml = ["studies:"];
  for (let study = 0; study < runs / 2; study++) {
    yaml.push(`  - name: S${study}`, "    samples: 25000", "    batch_per_rank: 32", "    runs:");
    for (const devices of [1, 4]) {
      const name = `s${study}_n${devices}`;
      mkdirSync(join(folder, name));
      const rows = ["epoch,train_loss,train_time,val_loss,val_acc"];
      for (let e = 1; e <= epochs; e++) {
        const seconds = (10 + study * 0.01 + Math.sin(e * 7 + study) * 0.1) / (devices === 1 ? 1 : 3.5);
        rows.push(`${e},${(1 / e + (devices - 1) * 0.05).toFixed(6)},${seconds.toFixed(6)},0.5,0.8`);
      }
      writeFileSync(join(folder, name, "metrics.csv"), `${rows.join("\n")}\n`);
      yaml.push(`      - {dir: ${name}, devices: ${devices}}`);
    }
  }
  writeFileSync(join(folder, "study.yaml"), `${yaml.join("\n")}\n`);
}

/** Seconds of the whole process of `weft analyze` without pictures. */
function analyzeRow(context: Context): void {
  const runs = context.quick ? 4 : 1000;
  const samples = inScratch("analyze", (folder) => {
    writeStudies(folder, runs);
    const line = [weftCommand, "analyze", folder, "--json", "--no-pictures", "--out", join(folder, "out")];
    return Array.from({ length: context.quick ? 1 : 5 }, () => {
      const started = performance.now();
      const { status, stdout } = spawnSync(process.execPath, line, { encoding: "utf8", maxBuffer: 1 << 30 });
      const seconds = (performance.now() - started) / 1e3;
      const { studies } = JSON.parse(stdout) as { studies: { valid: boolean; scaling: { speedup: number }[] }[] };
      const isRight = studies.every((s) => s.valid && Math.abs(s.scaling[1].speedup - 3.5) < 0.05);
      if (status !== 0 || studies.length !== runs / 2 || !isRight) throw new Error("the analysis is wrong");
      return seconds;
    });
  });
  const seconds = { median: median(samples), samples };
  const what = `weft analyze of ${runs} runs of ${epochs} epochs, without pictures, whole process`;
  context.open("lab-analyze", { what, seconds, limit: 5 }, { always: true }).save();
  console.log(`${runs} runs: median ${seconds.median.toFixed(2)} s`);
}

/** Writes a Kineto trace of a training loop, pretty-printed as Kineto does; returns the number of kernels. */
function generateTrace(file: string, bytes: number): number {
  const out = openSync(file, "w");
  const head = '"schemaVersion": 1,\n  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}';
  let written = writeSync(out, `{\n  ${head},\n  "traceEvents": [\n`);
  const event = (cat: string, name: string, tids: string, ts: number, dur: number, args: string): string =>
    `  {\n    "ph": "X", "cat": "${cat}", "name": "${name}", ${tids},\n    "ts": ${ts}, "dur": ${dur},\n    "args": {\n      ${args}\n    }\n  },\n`;
  const host = '"pid": 4711, "tid": 4711';
  let time = 1_700_000_000_000_000;
  let id = 0;
  while (written < bytes) {
    let piece = "";
    for (let i = 0; i < 400; i++, time += 40) {
      id++;
      const isCollective = id % 50 === 0;
      const [stream, name] = isCollective
        ? [20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"]
        : [
            7,
            `void at::native::vectorized_elementwise_kernel<4, at::native::Functor${id % 97}<float>, at::detail::Array<char*, 3> >(int, float)`,
          ];
      piece += event(
        "cpu_op",
        `aten::op${id % 211}`,
        host,
        time,
        30,
        `"External id": ${id},"Ev Idx": ${id}, "Input Dims": [[64, 1024], [1024, 1024]], "Input type": ["float", "float"], "Fwd thread id": 0, "Sequence number": ${id}`,
      );
      const launch = `"External id": ${id}, "cbid": 211, "correlation": ${id}`;
      piece += event("cuda_runtime", "cudaLaunchKernel", host, time + 5, 8, launch);
      piece += event(
        "kernel",
        name,
        `"pid": 0, "tid": ${stream}`,
        time + 20,
        isCollective ? 60 : 25,
        `"External id": ${id}, "queued": 0, "device": 0, "context": 1, "stream": ${stream}, "correlation": ${id}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 10.5, "warps per SM": 42.1, "grid": [1024, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 60`,
      );
      piece += `  {\n    "ph": "s", "id": ${id}, ${host}, "ts": ${time + 5},\n    "cat": "ac2g", "name": "ac2g"\n  },\n`;
    }
    written += writeSync(out, piece);
  }
  const process = '{"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "ts": 0, "args": {"name": "python"}}';
  writeSync(out, `  ${process}\n  ]\n}\n`);
  closeSync(out);
  return id;
}

interface TraceSample {
  seconds: number;
  peakBytes: number;
  bytes: number;
  idleUs: number;
  kernels: number;
}

/** One analysis in a process of its own; without a file only the peak of the interpreter is measured. */
function analyzeTrace(file?: string): TraceSample {
  const line = [entryPoint, "serve", "lab", ...(file === undefined ? [] : ["--trace", file])];
  const done = spawnSync(process.execPath, line, { encoding: "utf8" });
  if (done.status !== 0) throw new Error(done.stderr);
  return JSON.parse(done.stdout) as TraceSample;
}

const fastest = <T extends { seconds: number }>(samples: T[]): T =>
  samples.reduce((a, b) => (b.seconds < a.seconds ? b : a));

/** Both analyses on one file; their idle times must agree before the times are compared. */
function compareTrace(context: Context, file: string, rank: number): object {
  const repeats = context.quick ? 1 : 3;
  const ours = Array.from({ length: repeats }, () => analyzeTrace(file));
  const python = benchSettings.htaPython.get();
  const peer: { seconds: number; idleUs: number }[] = [];
  let absent: string | null = "WEFT_HTA_PYTHON is not set";
  if (python !== undefined && context.peers)
    for (let i = 0; i < repeats; i++) {
      const { lines, problem } = pythonLines<{ seconds: number; idleUs: number }>(python, [
        peerScript("holistic_trace.py"),
        file,
        String(rank),
      ]);
      absent = problem;
      if (problem !== null) break;
      peer.push(lines.at(-1)!);
      if (peer[i].idleUs !== ours[0].idleUs)
        throw new Error(`the analyses disagree: ${ours[0].idleUs} against ${peer[i].idleUs} us of idle time`);
    }
  const ratio = peer.length > 0 ? fastest(peer).seconds / fastest(ours).seconds : null;
  const name = file.split("/").at(-1)!;
  console.log(`${name}: ${fastest(ours).seconds.toFixed(2)} s; Holistic Trace Analysis ${ratio?.toFixed(1) ?? absent}`);
  return { file: name, bytes: ours[0].bytes, load: loadavg()[0], ours, peer: peer.length > 0 ? peer : [absent], ratio };
}

function traceRow(context: Context): void {
  const { record, save } = context.open("trace", { compared: [] as object[], large: {} }, { always: true });
  const given = context.text("trace");
  if (given !== undefined) {
    if (!existsSync(given)) throw new Error(`--trace ${given}: there is no such file`);
    record.compared.push(compareTrace(context, given, context.number("rank")));
  }
  inScratch("trace", (folder) => {
    const medium = join(folder, "generated-200MB.json");
    generateTrace(medium, context.quick ? 2e5 : 2e8);
    record.compared.push(compareTrace(context, medium, 0));
    rmSync(medium);
    const large = join(folder, "large.json");
    const kernels = generateTrace(large, context.quick ? 4e5 : 1e9 * context.number("gigabytes"));
    const interpreterBytes = analyzeTrace().peakBytes;
    const samples = Array.from({ length: context.quick ? 1 : 3 }, () => analyzeTrace(large));
    for (const sample of samples)
      if (sample.kernels !== kernels) throw new Error(`found ${sample.kernels} of ${kernels} kernels`);
    const peakBytes = Math.max(...samples.map((s) => s.peakBytes));
    record.large = {
      bytes: statSync(large).size,
      interpreterBytes,
      peakBytes,
      aboveInterpreterBytes: peakBytes - interpreterBytes,
      bytesPerSecond: samples[0].bytes / fastest(samples).seconds,
      samples,
    };
  });
  save();
}

/** A trace larger than memory should be used for: one analysis, its peak, and whether every kernel was counted. */
function memoryRow(context: Context): void {
  inScratch("memory", (folder) => {
    const file = join(folder, "large.json");
    const gigabytes = context.quick ? 4e-4 : context.number("gigabytes");
    const kernels = generateTrace(file, 1e9 * gigabytes);
    const sample = analyzeTrace(file);
    if (sample.kernels !== kernels) throw new Error(`found ${sample.kernels} of ${kernels} kernels`);
    const limitBytes = 1e9;
    const { bytes, peakBytes, seconds } = sample;
    const found = { bytes, kernels, peakBytes, limitBytes, seconds, bytesPerSecond: bytes / seconds };
    context
      .open("trace-memory", { what: "peak memory of the whole analysis of one trace file", ...found }, { always: true })
      .save();
    console.log(
      `${(bytes / 1e9).toFixed(1)} GB: ${(peakBytes / 1e6).toFixed(0)} MB at the peak, ${seconds.toFixed(0)} s`,
    );
  });
}

interface HangSample {
  seconds: number;
  processorSeconds: number;
  peakBytes: number;
  kind: string;
  culprits: number[];
}

/** `weft hang` on the dumps of a large job, in a process of its own. */
function hangRow(context: Context): void {
  const [ranks, entries] = context.quick ? [140, 20] : [4096, 2000];
  const culprit = 7;
  inScratch("hang", (folder) => {
    const bytesPerDump = writeDumps(folder, ranks, entries, culprit);
    const samples = Array.from({ length: context.quick ? 1 : 3 }, () => {
      const line = [entryPoint, "serve", "lab", "--dumps", folder];
      const done = spawnSync(process.execPath, line, { encoding: "utf8" });
      if (done.status !== 0) throw new Error(done.stderr);
      const sample = JSON.parse(done.stdout) as HangSample;
      if (sample.culprits.join() !== String(culprit))
        throw new Error(`found ${sample.culprits.join()}, not ${culprit}`);
      return sample;
    });
    const best = fastest(samples);
    context.open("hang-speed", { ranks, entries, bytesPerDump, samples, limit: 10 }, { always: true }).save();
    console.log(
      `${ranks} ranks of ${entries} entries: ${best.seconds.toFixed(2)} s, ${best.processorSeconds.toFixed(2)} s of processors`,
    );
  });
}

/**
 * The probe in a PyTorch training loop: epochs with and without it alternate in one process. The cost is the difference of
 * their fastest quarters, which other processes disturb least, in processor time of the training thread.
 */
function probeRow(context: Context): void {
  const torch = findPeer(context, "torch");
  const { record, save } = context.open("probe", { sizes: [] as object[] }, { always: true });
  if ("reason" in torch) {
    record.absent.torch = torch.reason;
    context.log(`the probe was not measured: ${torch.reason}`);
    if (context.quick) save();
    return;
  }
  const quarter = (values: number[]): number => mean([...values].sort((a, b) => a - b).slice(0, values.length >> 2));
  // An epoch costs as much as a few recorded steps: short and long ones.
  for (const [hidden, batches] of [
    [64, 20],
    [64, 200],
    [512, 20],
    [1024, 20],
  ] as const)
    inScratch("probe", (folder) => {
      process.env.PYTHONPATH = join(repository, "packages/lab/probe");
      process.env.WEFT_PROBE_DIR = folder;
      type Sample = { with: number[]; without: number[]; torch: string };
      const line = ["-W", "ignore", peerScript("probe_cost.py"), String(hidden), String(batches)];
      const { lines, problem } = pythonLines<Sample>(torch.command, line);
      if (problem !== null) throw new Error(problem);
      const [sample] = lines;
      const stepUs = quarter(sample.without);
      const costUs = quarter(sample.with) - stepUs;
      record.versions.torch = sample.torch;
      record.sizes.push({
        hidden,
        batchesPerEpoch: batches,
        stepUs,
        costUs,
        costPercent: (100 * costUs) / stepUs,
        samples: sample,
      });
      save();
      console.log(
        `step of ${stepUs.toFixed(0)} us, epoch of ${batches}: ${costUs.toFixed(1)} us, ${((100 * costUs) / stepUs).toFixed(2)}%`,
      );
    });
}

const suite: Suite = {
  options: {
    trace: { help: "a trace to compare on, besides generated ones" },
    rank: { value: "0", help: "rank of that trace" },
    gigabytes: { value: "1", help: "size of the large trace (10 in the record of trace-memory)" },
    dumps: { help: "with serve: the folder of the dumps of a stuck job" },
  },
  run(context) {
    const rows = [
      { id: "analyze", measure: analyzeRow },
      { id: "trace", measure: traceRow },
      { id: "trace-memory", measure: memoryRow },
      { id: "hang", measure: hangRow },
      { id: "probe", measure: probeRow },
    ];
    if (context.text("out") !== undefined && context.rows?.length !== 1)
      throw new Error("--out: every row has its own file; choose one with --rows");
    for (const { measure } of context.choose(rows)) measure(context);
  },
  async serve(context) {
    const file = context.text("trace");
    const start = performance.now();
    const facts: Partial<TraceSample> = {};
    if (file !== undefined) {
      const { analyzeTraces } = await import("@weft/lab/internal/trace");
      const [rank] = (await analyzeTraces([file])).ranks;
      const kernels = rank.kernels.reduce((n, { count }) => n + count, 0);
      Object.assign(facts, { bytes: rank.bytes, events: rank.events, idleUs: rank.idleUs, kernels });
      Object.assign(facts, { computeUs: rank.computeUs, spanUs: rank.spanUs });
    }
    const dumps = context.text("dumps");
    if (dumps !== undefined) {
      const { judgeHang, readHang } = await import("@weft/lab/internal/hang");
      const { kind, culprits } = judgeHang(await readHang([dumps]));
      Object.assign(facts, { kind, culprits });
    }
    const seconds = (performance.now() - start) / 1e3;
    const { user, system } = process.cpuUsage();
    Object.assign(facts, { processorSeconds: (user + system) / 1e6 });
    console.log(JSON.stringify({ seconds, peakBytes: process.resourceUsage().maxRSS * 1024, ...facts }));
  },
};

export default suite;
