// weft trace: time breakdown of traces of PyTorch (Kineto), JAX, Nsight Systems and rocprofv3, per rank.
import { existsSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { median } from "@weft/formats/stats";
import { type TraceChanges, traceChanges, traceFindings } from "@weft/lab/internal/diagnosis";
import { tracePage } from "@weft/lab/internal/report";
import {
  diffTraces,
  type MergeInput,
  mergeTraces,
  type RankReport,
  readTimeline,
  type TraceDiff,
  type TraceReport,
} from "@weft/lab/internal/trace";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  csv,
  failed,
  percent,
  printJson,
  printText,
  shorten,
  significant,
  size,
  table,
  time,
  warn,
  writeFiles,
  wrongUsage,
} from "../terminal/index.js";
import { operatorText, readTraces, traceMessages } from "./trace-common.js";

interface Options {
  json?: boolean;
  out?: string;
  diff?: string[];
  top: string;
  merged?: string;
  hta?: boolean;
  peaks?: string;
  html?: string;
}

const help = `
Examples:
  weft trace rank*.json.gz                        where the time goes, one row per rank
  weft trace rank*.json.gz --out traces/          also the tables as CSV, and all ranks as one file for Perfetto
  weft trace before.json --diff after.json        what changed between two runs, ranked by its time
  weft trace profile/ --json | jq '.ranks[].idleUs'

A folder stands for the .json and .json.gz files in it, or its .xplane.pb and .sqlite files. Traces may be cut off or lack their ranks: what is there is
used, and what is missing is reported on standard error.`;

export default function add(program: Command): void {
  program
    .command("trace")
    .description("Show the time breakdown of traces of PyTorch, JAX, Nsight Systems or rocprofv3, per rank.")
    .argument("<files...>", "trace files (.json, .json.gz, .xplane.pb, .sqlite, tapes), or folders of them")
    .option("--diff <files...>", "traces of the second run, to compare with")
    .option("--top <n>", "rows in each table", "10")
    .option("--merged <file>", "write all ranks into one Chrome trace")
    .option("--html <file>", "write a page with a timeline, findings and tables")
    .option("--hta", "round times as Holistic Trace Analysis does, to compare with it (default: exact)")
    .option(
      "--peaks <rates>",
      "measured rates for the roofline, such as bf16=790,tf32=420,bandwidth=4200 (TFLOP/s, GB/s)",
    )
    .option("--json", "the whole report as JSON on standard output")
    .option("--out <dir>", "write report.json, the tables as CSV and merged.json.gz into a folder")
    .addHelpText("after", help)
    .action((files: string[], options: Options) => attempt(() => run(files, options)));
}

async function run(files: string[], options: Options): Promise<void> {
  const top = Number(options.top);
  if (!Number.isInteger(top) || top < 1)
    throw new CommandError(`--top ${options.top} is not a count of 1 or more`, wrongUsage);
  const inputs = expand(files);
  const report = await readTraces(inputs, options);
  const second = options.diff === undefined ? null : await readTraces(expand(options.diff), options);
  const diff = second === null ? null : diffTraces(report, second);
  for (const message of traceMessages(report)) warn(message);
  if (second !== null) for (const message of traceMessages(second)) warn(message);
  for (const problem of diff?.problems ?? []) warn(problem);

  if (options.out !== undefined) await writeAll(options.out, inputs, report, diff);
  if (options.html !== undefined) await writePage(inputs, report, options.html);
  if (options.merged !== undefined) await merge(inputs, report, options.merged);
  if (options.json)
    printJson(
      diff === null
        ? report
        : { ...report, diff, changes: second === null ? null : traceChanges(report, second), second },
      0,
    );
  else if (diff === null || second === null) printText(`${show(report, top)}\n`);
  else printText(`${changesText(traceChanges(report, second))}\n\n${showDiff(diff, top)}\n`);
  if (report.ranks.every((rank) => rank.spanUs === undefined)) process.exitCode = failed;
}

function expand(files: readonly string[]): string[] {
  return files.flatMap((file) => {
    if (!existsSync(file)) throw new CommandError(`${file} does not exist`);
    if (!statSync(file).isDirectory()) return [file];
    const names = readdirSync(file).sort();
    const json = names.filter((name) => /\.json(?:\.gz)?$/.test(name));
    // A profile of JAX has both forms; the binary one is taken where there is no other.
    const inside = (json.length > 0 ? json : names.filter((name) => /\.(?:xplane\.pb|sqlite)$/.test(name))).map(
      (name) => join(file, name),
    );
    // jax.profiler.trace(folder) writes folder/plugins/profile/DATE; the newest is meant.
    const profiles = join(file, "plugins", "profile");
    const newest = inside.length === 0 && existsSync(profiles) ? readdirSync(profiles).sort().at(-1) : undefined;
    if (newest !== undefined) return expand([join(profiles, newest)]);
    if (inside.length === 0) throw new CommandError(`${file} holds no .json, .json.gz, .xplane.pb or .sqlite file`);
    return inside;
  });
}

function show(report: TraceReport, top: number): string {
  const parts: string[] = [rankTable(report)];
  const first =
    report.ranks.find((rank) => rank.spanUs !== undefined) ?? report.ranks.find((rank) => rank.kernels.length > 0);
  if (first === undefined) return "There is nothing to measure in these traces.";
  if (report.ranks.some((rank) => rank.idle.length > 0)) parts.push(idleTable(report.ranks));
  parts.push(kernelTable(first, top));
  const operators = operatorText(first, top);
  if (operators !== "") parts.push(operators);
  if (first.collectives.length > 0) parts.push(collectiveTable(first, top));
  if (report.skew.length > 0) parts.push(skewTable(report, top));
  if (first.launches !== null) parts.push(launchText(first));
  if (first.criticalPath !== null) parts.push(pathText(first));
  return parts.join("\n\n");
}

function rankTable(report: TraceReport): string {
  const rows = report.ranks.map((rank) => [
    String(rank.rank),
    rank.device,
    time(rank.spanUs),
    percent(rank.idlePercent),
    percent(rank.computePercent),
    percent(rank.nonComputePercent),
    percent(rank.overlapPercent),
    time(rank.exposedCommunicationUs),
    time(rank.dataLoaderUs),
    rank.steps.length === 0 ? "-" : time(median(rank.steps.map((step) => step.us))),
    rank.complete ? "" : "cut short",
  ]);
  const header = [
    "rank",
    "on",
    "span",
    "idle",
    "compute",
    "non-compute",
    "overlap",
    "exposed comm",
    "data wait",
    "median step",
    "",
  ];
  return table(header, rows, 2);
}

function idleTable(ranks: readonly RankReport[]): string {
  const rows = ranks.flatMap((rank) =>
    rank.idle.map((s) => [
      String(rank.rank),
      String(s.stream),
      time(s.hostWaitUs),
      time(s.kernelWaitUs),
      time(s.otherUs),
    ]),
  );
  return `Why streams are idle\n${table(["rank", "stream", "host wait", "kernel wait", "other"], rows)}`;
}

function kernelTable(rank: RankReport, top: number): string {
  const title = rank.source === "kineto" && rank.launches === null ? "Operators (own time)" : "Kernels";
  const rows = rank.kernels
    .slice(0, top)
    .map((k) => [
      shorten(k.name, 56),
      k.type.toLowerCase(),
      String(k.count),
      time(k.sumUs),
      time(k.meanUs),
      time(k.maxUs),
    ]);
  const rest = rank.kernels.length > top ? `\n(${rank.kernels.length - top} more; --top or --json shows them)` : "";
  return `${title} of rank ${rank.rank}\n${table(["name", "type", "count", "sum", "mean", "max"], rows, 2)}${rest}`;
}

function collectiveTable(rank: RankReport, top: number): string {
  const rows = rank.collectives
    .slice(0, top)
    .map((c) => [
      c.collective,
      size(c.bytes),
      c.groupSize === null ? "-" : String(c.groupSize),
      String(c.count),
      time(c.meanUs),
      time(c.minUs),
      c.busGBps === null ? "-" : `${significant(c.busGBps)} GB/s`,
    ]);
  const header = ["collective", "bytes", "ranks", "count", "mean", "shortest", "bus bandwidth"];
  return `Collectives of rank ${rank.rank}\n${table(header, rows)}`;
}

function skewTable(report: TraceReport, top: number): string {
  const rows = report.skew
    .slice(0, top)
    .map((s) => [
      s.collective,
      size(s.bytes),
      String(s.count),
      time(s.transferUs),
      time(s.skewUs),
      `${s.lastRank} (${s.lastCount} of ${s.count})`,
    ]);
  const late = report.stragglers
    .map(
      (s) =>
        `Rank ${s.rank} is a straggler: last in ${s.last} of ${s.of} collectives; the others waited ${time(s.causedWaitUs)} for it.`,
    )
    .join("\n");
  const waiting = `Of the communication time, ${percent(report.waitingPercent)} is waiting for the last rank.`;
  const header = ["collective", "bytes", "count", "transfer", "waiting", "last to arrive"];
  return [`Waiting and transfer\n${table(header, rows)}`, waiting, late].filter((part) => part !== "").join("\n");
}

function launchText(rank: RankReport): string {
  const l = rank.launches!;
  const queues = rank.queues.map((q) => `stream ${q.stream}: mean ${significant(q.mean)}, at most ${q.max}`).join("; ");
  return [
    `Launches of rank ${rank.rank}: ${l.launches}; a call takes ${time(l.callUs.mean)}, its work ${time(l.deviceUs.mean)}, which starts ${time(l.delayUs.mean)} after the call (median ${time(l.delayUs.median)}).`,
    `${l.shorterThanCall} kernels are shorter than the call that launched them. Waiting in the queue: ${queues}.`,
  ].join("\n");
}

function pathText(rank: RankReport): string {
  const path = rank.criticalPath!;
  const part = (name: string, us: number): string => `${name} ${percent((100 * us) / path.totalUs)}`;
  return `Critical path of rank ${rank.rank} (${time(path.totalUs)}): ${[
    part("computing", path.computeUs),
    part("communication", path.communicationUs),
    part("copies", path.copyUs),
    part("host", path.hostUs),
    part("launching", path.launchUs),
    part("between kernels", path.betweenKernelsUs),
  ].join(", ")}.`;
}

/** What changed and why, before the tables. */
function changesText({ beforeUs, afterUs, changes }: TraceChanges): string {
  const difference = afterUs - beforeUs;
  const share = percent((100 * Math.abs(difference)) / Math.max(beforeUs, 1e-9));
  const lead =
    Math.abs(difference) < 0.02 * beforeUs
      ? `A step takes as long as before (${time(beforeUs)} and ${time(afterUs)}).`
      : `A step takes ${time(Math.abs(difference))} (${share}) ${difference < 0 ? "less" : "more"}: ${time(beforeUs)} before, ${time(afterUs)} after.`;
  const lines = changes.map(
    (change, i) =>
      `${i + 1}. ${change.what}: ${time(change.beforeUs)} to ${time(change.afterUs)} per step: ${change.meaning}.`,
  );
  return [lead, ...(lines.length > 0 ? lines : ["No part of the step changed by 2% of it or more."])].join("\n");
}

function showDiff(diff: TraceDiff, top: number): string {
  const change = (name: string, before: number, after: number): string[] => [
    name,
    time(before),
    time(after),
    time(after - before),
    before > 0 ? percent((100 * (after - before)) / before) : "-",
  ];
  const per = diff.per === "step" ? "a step and rank" : "a rank, over the whole trace";
  const whole = table(
    [`per ${per}`, "before", "after", "change", ""],
    [
      change("span", diff.before.spanUs, diff.after.spanUs),
      change("compute", diff.before.computeUs, diff.after.computeUs),
      change("communication", diff.before.communicationUs, diff.after.communicationUs),
      change("idle", diff.before.idleUs, diff.after.idleUs),
    ],
  );
  const rows = diff.rows
    .filter((row) => row.change !== "unchanged")
    .slice(0, top)
    .map((row) => [
      shorten(row.name, 56),
      row.change,
      time(row.before.us),
      time(row.after.us),
      time(row.deltaUs),
      significant(row.deltaCount),
    ]);
  const unchanged = diff.rows.filter((row) => row.change === "unchanged").length;
  return `${whole}\n\n${table(["name", "", "before", "after", "change", "count"], rows, 2)}\n(${unchanged} unchanged)`;
}

/** The files with their ranks and the offsets that align their clocks. */
function aligned(files: readonly string[], report: TraceReport): MergeInput[] {
  const offsets = new Map(report.clockOffsets.map(({ rank, us }) => [rank, us]));
  return files.map((file) => {
    const rank = report.ranks.find((r) => r.file === file)?.rank ?? 0;
    return { file, rank, offsetUs: offsets.get(rank) ?? 0 };
  });
}

async function writePage(files: readonly string[], report: TraceReport, out: string): Promise<void> {
  const timeline = await readTimeline(aligned(files, report));
  const title = files.length === 1 ? basename(files[0]) : `${basename(files[0])} and ${files.length - 1} more`;
  writeFileSync(out, tracePage(title, report, traceFindings(report), timeline));
  warn(`wrote ${out}: open it in a browser`);
}

async function merge(files: readonly string[], report: TraceReport, out: string): Promise<void> {
  const inputs = aligned(files, report);
  if (existsSync(out)) throw new CommandError(`${out} exists already; name another file or remove it`);
  const { events, problems } = await mergeTraces(inputs, out);
  for (const problem of problems) warn(problem);
  warn(`${out}: ${events} events of ${inputs.length} file(s); open it in Perfetto or chrome://tracing`);
}

async function writeAll(
  folder: string,
  files: readonly string[],
  report: TraceReport,
  diff: TraceDiff | null,
): Promise<void> {
  const written: Record<string, string> = {
    "report.json": `${JSON.stringify(diff === null ? report : { ...report, diff }, null, 1)}\n`,
    "ranks.csv": csv(
      [
        "rank",
        "span_us",
        "idle_us",
        "compute_us",
        "non_compute_us",
        "communication_us",
        "exposed_us",
        "overlap_percent",
      ],
      report.ranks.map((r) => [
        r.rank,
        r.spanUs ?? null,
        r.idleUs ?? null,
        r.computeUs ?? null,
        r.nonComputeUs ?? null,
        r.communicationUs ?? null,
        r.exposedCommunicationUs ?? null,
        r.overlapPercent ?? null,
      ]),
    ),
    "kernels.csv": csv(
      ["rank", "name", "type", "count", "sum_us", "mean_us", "min_us", "max_us", "std_us"],
      report.ranks.flatMap((r) =>
        r.kernels.map((k) => [r.rank, k.name, k.type, k.count, k.sumUs, k.meanUs, k.minUs, k.maxUs, k.stdUs]),
      ),
    ),
    "operators.csv": csv(
      ["rank", "operator", "calls", "kernels", "device_us", "flops", "bytes", "tflops", "gb_per_s", "roof_percent"],
      report.ranks.flatMap((r) =>
        (r.operators?.rows ?? []).map((o) => [
          r.rank,
          o.name,
          o.calls,
          o.kernels,
          o.deviceUs,
          o.flops,
          o.bytes,
          o.tflops,
          o.bandwidthGBps,
          o.roofPercent,
        ]),
      ),
    ),
    "collectives.csv": csv(
      ["rank", "collective", "bytes", "ranks", "count", "mean_us", "min_us", "max_us", "bus_gb_per_s"],
      report.ranks.flatMap((r) =>
        r.collectives.map((c) => [
          r.rank,
          c.collective,
          c.bytes,
          c.groupSize,
          c.count,
          c.meanUs,
          c.minUs,
          c.maxUs,
          c.busGBps,
        ]),
      ),
    ),
  };
  for (const path of writeFiles(folder, written)) warn(`wrote ${path}`);
  const merged = join(folder, "merged.json.gz");
  if (!existsSync(merged)) await merge(files, report, merged);
}
