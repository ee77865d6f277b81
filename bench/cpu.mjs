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
import { Contest, foreignLimit } from "./lib/contest.mjs";
import { allowedCores, pinned, threadEnvironment } from "./lib/contestant.mjs";
import { hardware, versions } from "./lib/hardware.mjs";
import { waitForQuiet } from "./lib/quiet.mjs";
import { rows as allRows, coldLimits, peerNames, seats } from "./lib/rows.mjs";
import { summary } from "./lib/stats.mjs";
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
const contest = new Contest({ cores, rounds, seconds, patience, commands, seats, absent, peerNames });

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
  report.rows.push({ ...(await contest.run(row)), flops: row.flops, bytes: row.bytes });
}
contest.stop();
if (wanted === undefined || wanted.includes("cold")) {
  process.stderr.write("bench: cold starts\n");
  report.rows.push(...(await coldStarts()));
}
report.versions = { ...versions(), ...contest.versions };
if (out !== null) {
  mkdirSync(dirname(out), { recursive: true });
  // Messages of missing peers name files; where this checkout lies is nobody's business.
  writeFileSync(out, toText(report).replaceAll(new URL("..", import.meta.url).pathname, ""));
}
printTable(report);
if (out !== null) console.log(`\nEvery sample: ${out}. \`node bench/report.mjs\` writes docs/performance.md.`);
