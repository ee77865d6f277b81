// `npm run test:gpu`: the test suites that run on every device, on the GPU against the reference device, each file in its
// own process; then the sharding suite with two workers on the one GPU. Prints and records counts, and exits with 1 where a
// test failed, a file did not finish, or nothing ran. Works in a checkout and on built packages that were copied.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { benchSettings } from "../settings.js";
import type { Context, Suite } from "./context.js";
import { jsonLines } from "./peers.js";
import { runningChildren } from "./process.js";

const distOf = (name: "core" | "quantum" | "cluster"): string => {
  const main = { core: "@weft/core", quantum: "@weft/quantum", cluster: "@weft/cluster" }[name];
  return dirname(fileURLToPath(import.meta.resolve(main)));
};

type TestPackage = "core" | "quantum";

/** Test files by package, the slowest first; files that only look at graphs and plans have no place here. */
const standard: [TestPackage, string][] = [
  ["core", "test/ops"],
  ["quantum", "golden"],
  ["core", "test/fuzz"],
  ["core", "test/memory"],
  ["core", "test/gradients"],
  ["quantum", "solvers/closed-forms"],
  ["quantum", "solvers/lindblad"],
  ["core", "compile/lane"],
  ["core", "test/scan"],
  ["core", "test/vmap"],
  ["core", "test/transforms"],
  ["core", "test/jit"],
  ["core", "test/reduce-axes"],
  ["core", "test/varying"],
  ["core", "test/control"],
  ["core", "test/complex-programs"],
  ["core", "test/selection"],
  ["core", "test/derivative-edges"],
];
const extended: [TestPackage, string][] = [
  ["core", "test/distributions"],
  ["core", "nn/layers"],
  ["core", "nn/transformer"],
  ["core", "nn/mixed"],
  ["core", "optim/optim"],
  ["quantum", "control/golden"],
  ["quantum", "control/control"],
  ["quantum", "noise/noise"],
  ["quantum", "systems/systems"],
  ["quantum", "meta/meta"],
];

interface TestFile {
  suite: string;
  file: string;
  /** Which part of the functions of a file this is, such as 2/6. */
  part?: string;
}

/** The cases of all functions take minutes to compile: parts of them run side by side. */
const parted = { suite: "core/test/ops", parts: 8 };

/** Files to run: the list above and every test of the CUDA device that needs a GPU. */
export function gpuTestFiles(all: boolean): TestFile[] {
  const cuda = readdirSync(join(distOf("core"), "device/cuda"))
    .filter((name) => name.endsWith("-gpu.test.js"))
    .map((name): [TestPackage, string] => ["core", `device/cuda/${name.slice(0, -".test.js".length)}`]);
  return [...standard.slice(0, 2), ...cuda, ...standard.slice(2), ...(all ? extended : [])].flatMap(([name, path]) => {
    const whole = { suite: `${name}/${path}`, file: join(distOf(name), `${path}.test.js`) };
    if (whole.suite !== parted.suite) return [whole];
    const parts = Array.from({ length: parted.parts }, (_, i) => `${i + 1}/${parted.parts}`);
    return parts.map((part) => ({ ...whole, suite: `${whole.suite}, part ${part}`, part }));
  });
}

const endGroup = (pid: number): void => {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The process has ended.
  }
};

interface Finished {
  code: number | string | null;
  out: string;
  err: string;
  isLate: boolean;
  seconds: number;
}

/** Runs a command in a process group of its own; past its time the whole group is ended. */
function runLimited(args: string[], env: NodeJS.ProcessEnv, limit: number): Promise<Finished> {
  return new Promise((resolve) => {
    const started = performance.now();
    const child = spawn(process.execPath, args, {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    let [out, err, isLate] = ["", "", false];
    child.stdout.setEncoding("utf8").on("data", (text) => {
      out += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text) => {
      err = (err + text).slice(-20000);
    });
    const timer = setTimeout(() => {
      isLate = true;
      endGroup(child.pid!);
    }, limit * 1000);
    const group = { kill: () => endGroup(child.pid!) };
    runningChildren.add(group);
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      runningChildren.delete(group);
      resolve({ code: code ?? signal, out, err, isLate, seconds: (performance.now() - started) / 1e3 });
    });
  });
}

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
  failures: string[];
}

/** Counts of a finished file are node's own; of one that was ended, those of the lines that it printed. */
export function countTests(out: string): Counts {
  const total = (name: string): number => Number(new RegExp(`^# ${name} (\\d+)$`, "m").exec(out)?.[1] ?? Number.NaN);
  const failures = [...out.matchAll(/^ *not ok \d+ - (.*)$/gm)].map(([, name]) => name);
  if (Number.isNaN(total("pass"))) {
    const passes = out.match(/^ *ok \d+ - /gm)?.length ?? 0;
    const skipped = out.match(/^ *ok \d+ - .*# SKIP/gm)?.length ?? 0;
    return { passed: passes - skipped, failed: failures.length, skipped, failures };
  }
  // "cancelled" is the spelling of node's TAP reporter.
  return { passed: total("pass"), failed: total("fail") + total("cancelled"), skipped: total("skipped"), failures };
}

interface SuiteResult extends Counts {
  suite: string;
  seconds: number;
  problem: string | null;
}

class GpuTests {
  readonly #limit: number;
  readonly #isEmulated: boolean;
  readonly #preload: string[];

  constructor(readonly context: Context) {
    this.#limit = context.number("limit");
    this.#isEmulated = context.flag("emulated");
    this.#preload = this.#isEmulated
      ? ["--import", join(distOf("core"), "device/cuda/emulated/preload.testkit.js")]
      : [];
  }

  /** Name of the GPU; fails before anything runs, because the suites would run on the reference device alone. */
  gpuName(): string {
    const code = `import { CudaDevice } from ${JSON.stringify(import.meta.resolve("@weft/core"))};
      if (!CudaDevice.available()) { console.error("no GPU can be used: npx weft doctor says why"); process.exit(1); }
      console.log(new CudaDevice().context.name);`;
    const line = [...this.#preload, "--input-type=module", "-e", code];
    const done = spawnSync(process.execPath, line, { encoding: "utf8" });
    if (done.status !== 0) throw new Error(done.stderr.trim().split("\n").slice(-3).join("\n"));
    return done.stdout.trim().split("\n").at(-1)!;
  }

  #saveLog(name: string, { out, err }: Finished): void {
    const folder = this.context.text("logs");
    if (folder === undefined) return;
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `${name.replaceAll("/", "_")}.log`), `${out}\n${err}`);
  }

  async file({ suite, file, part }: TestFile): Promise<SuiteResult> {
    const env = {
      WEFT_TEST_DEVICES: "reference,cuda",
      ...(part !== undefined && { WEFT_TEST_PART: part }),
      ...(this.#isEmulated && { WEFT_CUDA_GRAPHS: "0" }),
    };
    const done = await runLimited([...this.#preload, "--test-reporter=tap", file], env, this.#limit);
    this.#saveLog(suite, done);
    const counts = countTests(done.out);
    const ended = `ended with ${done.code}: ${done.err.trim().split("\n").slice(-3).join(" ")}`;
    const problem = done.isLate
      ? `not finished after ${this.#limit} s`
      : done.code !== 0 && counts.failed === 0
        ? ended
        : counts.passed === 0
          ? "no test ran"
          : null;
    return { suite, ...counts, seconds: done.seconds, problem };
  }

  async sharding(device: string): Promise<SuiteResult> {
    const env = { WEFT_SHARD_TEST_DEVICE: device, WEFT_SHARD_TEST_WORKERS: "2", WEFT_SHARD_TEST_CLUSTERS: "4" };
    const done = await runLimited([join(distOf("cluster"), "test/cluster-suite.main.js")], env, this.#limit);
    this.#saveLog("sharding", done);
    type Line = { suite?: string; passed?: number; failed?: number | string; ok?: boolean; broken?: string[] };
    const lines = jsonLines<Line>(done.out);
    const summary = lines.find(({ suite }) => suite === "sharding");
    const ended = done.isLate ? `not finished after ${this.#limit} s` : `ended with ${done.code}`;
    return {
      suite: `sharding, two workers on ${device === "cuda" ? "one GPU" : device}`,
      passed: summary?.passed ?? 0,
      failed: Number(summary?.failed ?? 0),
      skipped: 0,
      failures: lines.flatMap(({ failed }) => (typeof failed === "string" ? [failed.slice(0, 200)] : [])),
      seconds: done.seconds,
      problem: done.code === 0 && summary?.ok ? null : (summary?.broken?.[0] ?? ended),
    };
  }
}

function printResults(results: readonly SuiteResult[]): void {
  const wide = Math.max(...results.map(({ suite }) => suite.length));
  const line = (suite: string, ...cells: unknown[]): string =>
    `${suite.padEnd(wide)}  ${cells.map((c) => String(c).padStart(8)).join("")}`;
  console.log(line("suite", "passed", "failed", "skipped", "s"));
  for (const { suite, passed, failed, skipped, seconds, problem, failures } of results) {
    console.log(`${line(suite, passed, failed, skipped, seconds.toFixed(0))}${problem ? `  ${problem}` : ""}`);
    for (const name of failures.slice(0, 10)) console.log(`    not ok: ${name}`);
  }
}

const suite: Suite = {
  defaults: { device: "cuda" },
  options: {
    only: { help: "files whose name contains one of these texts" },
    skip: { help: "files to leave out" },
    all: { flag: true, help: "also models, optimizers and the rest of quantum" },
    together: { value: String(availableParallelism()), help: "files at a time" },
    limit: { value: "300", help: "seconds per file" },
    "no-sharding": { flag: true, help: "leave out the sharding suite" },
    logs: { help: "folder for the output of every file" },
    emulated: { flag: true, help: "exercise this command without a GPU; not a test of one" },
  },
  async run(context) {
    const [only, skip] = [context.text("only"), context.text("skip")];
    const holds = (name: string, texts: string): boolean => texts.split(",").some((text) => name.includes(text));
    const isChosen = (name: string): boolean =>
      (only === undefined || holds(name, only)) && (skip === undefined || !holds(name, skip));
    const files = gpuTestFiles(context.flag("all")).filter(({ suite: name }) => isChosen(name));
    const shardingDevice = benchSettings.shardTestDevice.get() ?? (context.flag("emulated") ? null : "cuda");
    const hasSharding = !context.flag("no-sharding") && shardingDevice !== null && isChosen("sharding");
    const tests = new GpuTests(context);
    const gpu = tests.gpuName();
    const started = performance.now();
    const results: SuiteResult[] = [];
    const waiting = [...files];
    const work = async (): Promise<void> => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        const result = await tests.file(next);
        context.log(
          `${result.suite}: ${result.passed} passed, ${result.failed} failed, ${result.seconds.toFixed(0)} s`,
        );
        results.push(result);
      }
    };
    await Promise.all(Array.from({ length: Math.max(1, context.number("together")) }, work));
    const order = files.map(({ suite: name }) => name);
    results.sort((a, b) => order.indexOf(a.suite) - order.indexOf(b.suite));
    if (hasSharding) results.push(await tests.sharding(shardingDevice!));
    printResults(results);
    const sum = (key: "passed" | "failed" | "skipped"): number => results.reduce((n, r) => n + r[key], 0);
    const total = {
      suites: results.length,
      passed: sum("passed"),
      failed: sum("failed"),
      skipped: sum("skipped"),
      unfinished: results.filter(({ problem }) => problem !== null).length,
    };
    console.log(JSON.stringify(total));
    const seconds = (performance.now() - started) / 1e3;
    const { record, path, save } = context.open("gpu-tests", { seconds, total, suites: results });
    record.hardware.gpu = gpu;
    // The documentation cites whole runs on a GPU; a choice of files is only written with --out.
    const isWhole = only === undefined && skip === undefined && !context.flag("emulated") && hasSharding;
    if (path !== null && (isWhole || context.text("out") !== undefined)) save();
    if (results.length === 0 || results.some(({ failed, problem }) => failed > 0 || problem !== null))
      process.exitCode = 1;
  },
};

export default suite;
