// `npm run bench:cpu`: Weft against its peers on the CPU, in one run, on the same cores, in interleaved rounds. Every
// answer is checked before its time counts. Writes results/cpu.json and prints the table.
// Options: --rows a,b  --rounds 7  --seconds 0.5 (a round)  --cores 0,1  --patience 20 (seconds to wait for other
// processes to leave the cores alone)  --out FILE (with --rows nothing is written unless asked for: the page of results
// shows one whole run)
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { setup, sh } from "../scripts/setup.mjs";
import { allowedCores, Contestant, pinned, threadEnvironment } from "./lib/contestant.mjs";
import { hardware, versions } from "./lib/hardware.mjs";
import { waitForQuiet, watched } from "./lib/quiet.mjs";
import { rows as allRows, coldLimits, peerNames, seats } from "./lib/rows.mjs";
import { median, summary } from "./lib/stats.mjs";
import { printTable } from "./lib/table.mjs";

setup();
if (sh(process.execPath, [fileURLToPath(new URL("../scripts/build.mjs", import.meta.url))]) !== 0) process.exit(1);
const { javascriptPeers, newerNode, torchPython } = await import("./lib/install.mjs");

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    rows: { type: "string" },
    rounds: { type: "string", default: "7" },
    seconds: { type: "string", default: "0.5" },
    cores: { type: "string" },
    patience: { type: "string", default: "20" },
    out: { type: "string" },
  },
});
const cores = options.cores?.split(",").map(Number) ?? allowedCores();
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const patience = Number(options.patience);
const wanted = options.rows?.split(",");
const out = options.out ?? (wanted === undefined ? join(here, "results/cpu.json") : null);
const rows = allRows.filter(({ id }) => wanted?.includes(id) ?? true);
/** A round in which others took more than this share of the cores is repeated. */
const foreignLimit = 0.08;

const absent = {};
const python = torchPython();
if ("reason" in python) absent.torch = python.reason;
const noJavascript = javascriptPeers();
if (noJavascript !== null) absent.tfjs = absent.jaxjs = noJavascript;
const node24 = newerNode();
if (node24 === null) absent.jaxjs ??= "it needs Node 21 or newer";

const commands = {
  weft: () => [process.execPath, [join(here, "weft/worker.mjs")]],
  native: () => [process.execPath, [join(here, "peers/native.mjs")]],
  torch: () => [python.python, ["-W", "ignore", join(here, "peers/torch_cpu.py")]],
  tfjs: () => [process.execPath, [join(here, "peers/tfjs.mjs")]],
  jaxjs: () => [node24, [join(here, "peers/jaxjs.mjs")]],
};
const processes = new Map();
const versionsOf = {};

async function contestant(name) {
  const known = processes.get(name);
  if (known !== undefined) return known;
  const started = new Contestant(name, cores, ...commands[name]());
  processes.set(name, started);
  versionsOf[name] = await started.ask({ do: "versions" });
  return started;
}

/** One round of one contestant: samples, taken again while others used the cores, at most until patience is over. */
async function measure(entry, row) {
  const request = { do: "time", row: entry.row, seconds, least: 3 };
  const end = performance.now() + patience * 1e3;
  for (;;) {
    await waitForQuiet(cores, Math.max(0, (end - performance.now()) / 1e3), foreignLimit);
    const { result, foreign } = await watched(cores, entry.process.pid, () => entry.process.ask(request));
    if (foreign <= foreignLimit || performance.now() > end) return { samples: result.samples, foreign };
    process.stderr.write(
      `bench: ${row.id} ${entry.name}: others took ${(foreign * 100).toFixed(0)}% of the cores, again\n`,
    );
  }
}

async function runRow(row) {
  const entries = [];
  const problems = {};
  for (const name of ["weft", ...Object.keys(row.peers)]) {
    const seat = seats[name];
    if (absent[seat.process] !== undefined) {
      problems[name] = absent[seat.process];
      continue;
    }
    try {
      const worker = await contestant(seat.process);
      const entry = { name, process: worker, row: seat.row(row.id), rounds: [] };
      const { check, info } = await worker.ask({ do: "prepare", row: entry.row });
      entries.push(Object.assign(entry, { check, info }));
    } catch (error) {
      problems[name] = error.message.split("\n").slice(0, 6).join("\n");
    }
  }
  const wrong = row.check(Object.fromEntries(entries.map(({ name, check }) => [name, check])));
  if (wrong === null && entries[0]?.name === "weft")
    for (let round = 0; round < rounds; round++)
      for (const entry of round % 2 === 0 ? entries : [...entries].reverse())
        entry.rounds.push(await measure(entry, row));
  for (const entry of entries) await entry.process.ask({ do: "release", row: entry.row });
  return {
    id: row.id,
    title: row.title,
    flops: row.flops,
    bytes: row.bytes,
    wrong,
    problems,
    ...results(row, entries),
  };
}

/**
 * Medians and ratios. A ratio is taken within each round, so that noise meets both sides; their median counts. Where
 * three rounds or more were quiet for everybody, only those count.
 */
function results(row, entries) {
  const quiet = Array.from({ length: rounds }, (_, i) => i).filter((i) =>
    entries.every((entry) => (entry.rounds[i]?.foreign ?? 0) <= foreignLimit),
  );
  const counted = (_, i) => quiet.length < 3 || quiet.includes(i);
  const medians = (entry) => entry.rounds.filter(counted).map(({ samples }) => median(samples));
  const weft = entries.find(({ name }) => name === "weft");
  const times = Object.fromEntries(
    entries
      .filter((entry) => entry.rounds.length > 0)
      .map((entry) => [
        entry.name,
        {
          ms: median(medians(entry)),
          spread: summary(entry.rounds.filter(counted).flatMap(({ samples }) => samples)),
          info: entry.info,
          rounds: entry.rounds,
        },
      ]),
  );
  const ratios = {};
  for (const entry of entries) {
    if (entry === weft || weft === undefined || entry.rounds.length === 0) continue;
    const own = medians(weft);
    const each = medians(entry).map((ms, i) => ms / own[i]);
    const minimum = row.peers[entry.name];
    ratios[entry.name] = {
      name: peerNames[entry.name],
      ratio: median(each),
      min: Math.min(...each),
      max: Math.max(...each),
      wanted: minimum,
      met: minimum === null ? null : median(each) >= minimum,
    };
  }
  const limit =
    row.limitMs === undefined || times.weft === undefined
      ? undefined
      : { ms: row.limitMs, met: times.weft.ms <= row.limitMs };
  return { times, ratios, limit };
}

/** The transformer step in new processes: compiling everything, and with everything in the disk cache. */
async function coldStarts() {
  const cache = mkdtempSync(join(tmpdir(), "weft-bench-cache-"));
  const start = () => {
    const [file, args] = pinned(cores, process.execPath, [join(here, "weft/cold.mjs")]);
    const environment = { ...process.env, ...threadEnvironment(cores), WEFT_CACHE_DIR: cache };
    const done = spawnSync(file, args, { encoding: "utf8", env: environment });
    if (done.status !== 0) throw new Error(done.stderr.split("\n").slice(0, 6).join("\n"));
    return JSON.parse(done.stdout);
  };
  const samples = { cold: [], cached: [] };
  try {
    for (let i = 0; i < Math.min(rounds, 5); i++) {
      rmSync(cache, { recursive: true });
      mkdirSync(cache);
      await waitForQuiet(cores, patience, foreignLimit);
      samples.cold.push(start());
      await waitForQuiet(cores, patience, foreignLimit);
      samples.cached.push(start());
    }
  } catch (error) {
    return [
      { id: "cold", title: "cold start of the transformer step", wrong: null, problems: { weft: error.message } },
    ];
  } finally {
    rmSync(cache, { recursive: true, force: true });
  }
  const [first] = samples.cold;
  const titles = { cold: "cold compile of the transformer step", cached: "transformer step from the disk cache" };
  return Object.entries(samples).map(([id, list]) => {
    const spread = summary(list.map(({ firstResultMs }) => firstResultMs));
    const differing = list.find(({ loss }) => loss !== first.loss);
    return {
      id,
      title: titles[id],
      wrong: differing === undefined ? null : `losses differ between starts: ${differing.loss}, ${first.loss}`,
      problems: {},
      times: { weft: { ms: spread.median, spread, starts: list } },
      ratios: {},
      limit: { ms: coldLimits[id], met: spread.median <= coldLimits[id] },
    };
  });
}

/** JSON with five digits a number and lists of numbers on one line: every sample is kept, and the file stays readable. */
function toText(value) {
  const rounded = (_, v) => (typeof v === "number" && !Number.isInteger(v) ? Number(v.toPrecision(5)) : v);
  const text = JSON.stringify(value, rounded, 1);
  return `${text.replace(/\[\n[\s\d.,e+-]+\]/g, (list) => list.replace(/\s+/g, ""))}\n`;
}

const report = {
  kind: "cpu",
  at: new Date().toISOString(),
  hardware: hardware(cores),
  settings: { rounds, seconds, foreignLimit },
  absent,
  rows: [],
};
for (const row of rows) {
  process.stderr.write(`bench: ${row.title}\n`);
  report.rows.push(await runRow(row));
}
for (const worker of processes.values()) worker.stop();
if (wanted === undefined || wanted.includes("cold")) {
  process.stderr.write("bench: cold starts\n");
  report.rows.push(...(await coldStarts()));
}
report.versions = { ...versions(), ...versionsOf };
if (out !== null) {
  mkdirSync(dirname(out), { recursive: true });
  // Messages of missing peers name files; where this checkout lies is nobody's business.
  writeFileSync(out, toText(report).replaceAll(new URL("..", import.meta.url).pathname, ""));
}
printTable(report);
if (out !== null) console.log(`\nEvery sample: ${out}. \`node bench/report.mjs\` writes docs/performance.md.`);
