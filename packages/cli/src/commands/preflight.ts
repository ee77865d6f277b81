// weft preflight: measures the workers of a cluster and their links before a job, and names the slow ones.
import type { Command } from "commander";
import { attempt, ProgressLine, parseCount, printJson, printText, table } from "../terminal/index.js";
import { addSecurity, type SecurityFlags, security } from "./cluster-common.js";
import { engineWork } from "./engine-work.js";

interface Options extends SecurityFlags {
  server?: string;
  devices?: number;
  repeats: number;
  seconds: number;
  json?: boolean;
}

const help = `
Examples:
  weft preflight --server head:9000        the workers of a running dispatcher
  weft preflight --devices 3               three workers of this machine, started for it
  weft preflight --server head:9000 --json  for scripts

Measures products, memory and loading of data on each worker, an all-reduce on each link, and every collective over all workers.
A worker is named when even its best time is 1.3 times that of its peers (memory and files: 2 times), a link at 1.8 times. Time that
other processes took from a worker does not count, and whatever seems slow is measured again beside others. Three workers of a kind
are needed to tell which one is slow. The rates are saved for the planner, on this machine.
Exit code: 0 nothing is slow; 4 something is; 1 an error.`;

export default function add(program: Command): void {
  addSecurity(
    program
      .command("preflight")
      .description("Measure every worker and link of a cluster before a job, and name the slow ones.")
      .option("--server <host:port>", "use a running dispatcher and its workers")
      .option("--devices <n>", "start this many workers of one core here (3 by default)", parseCount),
    "client",
  )
    .option("--repeats <n>", "samples of each measurement", parseCount, 3)
    .option("--seconds <n>", "begin no repeat after this time", parseCount, 50)
    .option("--json", "the report as JSON on standard output")
    .addHelpText("after", help)
    .action((options: Options) => attempt(() => engineWork(() => run(options))));
}

async function run(options: Options): Promise<void> {
  const { connect, preflight } = await import("@weft/cluster");
  const { repeats, seconds } = options;
  const cluster =
    options.server === undefined
      ? await connect({ devices: options.devices ?? 3, cores: 1, calibrate: false })
      : await connect(options.server, security(options));
  const progress = new ProgressLine();
  try {
    const report = await preflight(cluster, {
      repeats,
      seconds,
      onProgress: (text, share) => progress.update(text, share, 1),
    });
    progress.clear();
    if (options.json) printJson(report, 0);
    else printText(show(report));
    if (report.findings.length > 0) process.exitCode = 4;
  } finally {
    progress.clear();
    await cluster.close();
  }
}

type Report = Awaited<ReturnType<typeof import("@weft/cluster").preflight>>;

const giga = (value: number): string => (value / 1e9).toFixed(value < 1e9 ? 3 : 1);
const ms = (seconds: number): string => (seconds * 1e3).toFixed(2);

function show({ workers, links, collectives, findings, undecided, seconds }: Report): string {
  const times = (slower: number): string => `${slower.toFixed(1)}x slower`;
  const lines = [
    ...(findings.length === 0 ? [`Nothing is slow beside its neighbors (${seconds.toFixed(0)} s).`] : []),
    ...findings.map(
      ({ what, workers: who, slower, evidence }) => `SLOW ${what} ${who.join(" - ")}, ${times(slower)}. ${evidence}.`,
    ),
    ...undecided.map((text) => `Cannot say: ${text}.`),
    "",
    table(
      ["worker", "GFLOP/s", "memory GB/s", "loader MB/s"],
      workers.map(({ worker, products, memory, loader }) => [
        worker,
        giga(products),
        giga(memory),
        (loader / 1e6).toFixed(0),
      ]),
      1,
    ),
  ];
  // Of many links the slowest are enough; all of them are in the JSON.
  const slowest = [...links].sort((a, b) => a.bandwidth - b.bandwidth).slice(0, 10);
  if (links.length > 0)
    lines.push(
      "",
      table(
        [
          links.length > slowest.length ? `slowest ${slowest.length} of ${links.length} links` : "link",
          "place",
          "tiny, ms",
          "MB/s",
        ],
        slowest.map(({ workers: [a, b], hosts, latency, bandwidth }) => [
          `${a} - ${b}`,
          hosts[0] === hosts[1] ? "one host" : "two hosts",
          ms(latency),
          (bandwidth / 1e6).toFixed(0),
        ]),
        2,
      ),
    );
  if (collectives.length > 0)
    lines.push(
      "",
      table(
        [`over all ${workers.length}`, "received", "ms"],
        collectives.map(({ kind, bytes, seconds: time }) => [kind, `${(bytes / 1e3).toFixed(1)} kB`, ms(time)]),
        1,
      ),
    );
  return `${lines.join("\n")}\n`;
}
