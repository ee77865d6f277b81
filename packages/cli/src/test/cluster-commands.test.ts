import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "@weft/core";
import { noMpirun } from "@weft/testing/debian";

const main = fileURLToPath(new URL("../main.js", import.meta.url));
const skip = CpuDevice.available() ? false : "no C compiler";
const folder = mkdtempSync(join(tmpdir(), "weft-cli-cluster-"));
const running: ChildProcess[] = [];
const engine = import.meta.resolve("@weft/core");

interface Ready {
  port: number;
  id: string;
}

async function start(command: string[], first: string = process.execPath): Promise<Ready & { child: ChildProcess }> {
  const child = spawn(first, command, { stdio: ["ignore", "pipe", "inherit"] });
  running.push(child);
  const [text] = (await once(child.stdout!, "data")) as [Buffer];
  return { child, ...(JSON.parse(text.toString().split("\n")[0]) as Ready) };
}

const weft = (...args: string[]) => spawnSync(process.execPath, [main, ...args], { encoding: "utf8", timeout: 60_000 });

let port = "";
before(async () => {
  if (skip) return;
  port = String((await start([main, "server", "-p", "0", "--json"])).port);
  await start([main, "worker", "-p", port, "--cores", "1", "--json", "--label", "first"]);
});
after(() => {
  for (const child of running) child.kill("SIGTERM");
  rmSync(folder, { recursive: true, force: true });
});

/** A program that runs on the cluster when WEFT_CONNECT is set. */
function program(env: Record<string, string>): string {
  const file = join(folder, "program.mjs");
  writeFileSync(
    file,
    `import * as weft from ${JSON.stringify(engine)};
const x = weft.tensor(Float32Array.from({ length: 60 * 40 }, (_, i) => Math.sin(i))).reshape([60, 40]);
console.log(weft.session().device.name, (await x.matmul(x.T).sum().item()).toFixed(2));`,
  );
  const { stdout, stderr, status } = spawnSync(process.execPath, [file], {
    encoding: "utf8",
    env: { ...process.env, ...env },
  });
  assert.equal(status, 0, stderr);
  return stdout.trim();
}

test("a program runs locally and on a server with workers", { skip }, () => {
  const [here, there] = [program({ WEFT_DEVICE: "cpu" }), program({ WEFT_CONNECT: `localhost:${port}` })];
  assert.match(here, /^cpu /);
  assert.match(there, new RegExp(`^cluster at localhost:${port} `));
  assert.equal(there.split(" ").at(-1), here.split(" ").at(-1));
});

test("top shows the workers and their counters", { skip }, () => {
  const { stdout, status } = weft("top", "-p", port, "--once", "--json");
  assert.equal(status, 0);
  const { workers } = JSON.parse(stdout) as { workers: { info: { label: string }; state: string }[] };
  assert.deepEqual(
    workers.map((w) => [w.info.label, w.state]),
    [["first", "ready"]],
  );
  assert.match(weft("top", "-p", port, "--once").stdout, /1 worker,.*\n.*worker +device.*\n.*\n *w1 +first/s);
});

test("tape shows, summarizes, exports, replays and compares", { skip }, () => {
  const tape = join(folder, "run.tape");
  program({ WEFT_DEVICE: "cpu", WEFT_TAPE: tape });
  assert.match(weft("tape", "show", tape).stdout, /gemm.*program\.mjs/);
  assert.match(weft("tape", "stats", tape).stdout, /GFLOP\/s/);
  const out = join(folder, "trace.json");
  assert.equal(weft("tape", "export", tape, "-o", out).status, 0);
  assert.ok((JSON.parse(readFileSync(out, "utf8")) as { traceEvents: object[] }).traceEvents.length > 0);
  const replayed = weft("tape", "replay", tape, "--devices", "2", "--json");
  assert.equal(replayed.status, 0, replayed.stderr);
  assert.equal((JSON.parse(replayed.stdout) as { equal: boolean }).equal, true);
  assert.equal(weft("tape", "diff", tape, tape).status, 0);
  const lab = weft("analyze", tape, "--json");
  // One run is not a scaling study, but the lab can read it.
  assert.match(lab.stdout, /"devices": 1/);
});

test("errors of wrong usage and missing servers name the remedy", { skip }, () => {
  assert.equal(weft("server", "-p", "x").status, 2);
  const taken = weft("server", "-p", port);
  assert.equal(taken.status, 1);
  assert.match(taken.stderr, /is taken; is a dispatcher running already/);
  const alone = weft("worker", "-p", "1", "--wait", "0");
  assert.match(alone.stderr, /no dispatcher is listening at localhost:1; start a dispatcher/);
  assert.equal(alone.status, 1, "it exits");
  const nobody = weft("top", "-p", "1", "--once");
  assert.match(nobody.stderr, /no dispatcher is listening/);
  assert.equal(nobody.status, 1);
  const unheard = weft("bench", "--quick", "--server", "localhost:1");
  assert.match(unheard.stderr, /^weft: no dispatcher is listening at localhost:1; start a dispatcher/);
  assert.equal(unheard.status, 1);
  const many = weft("bench", "--quick", "--devices", "1", "2", "--server", `localhost:${port}`);
  assert.match(many.stderr, /2 devices were asked for and the dispatcher at .* has 1 worker; ask for fewer/);
  assert.equal(many.status, 2);
  assert.match(weft("tape", "show", join(folder, "none")).stderr, /does not exist/);
  assert.match(weft("worker", "-p", port, "--device", "abacus").stderr, /there is no device "abacus"; devices are/);
});

test("SIGINT ends server and worker cleanly", { skip }, async () => {
  const server = await start([main, "server", "-p", "0", "--json"]);
  const worker = await start([main, "worker", "-p", String(server.port), "--cores", "1", "--json"]);
  for (const { child } of [worker, server]) {
    child.kill("SIGINT");
    const [code] = (await once(child, "exit")) as [number];
    assert.equal(code, 0);
  }
});

const noMpi = skip || noMpirun();

test("workers under mpirun join", { skip: noMpi }, async () => {
  const server = await start([main, "server", "-p", "0", "--json"]);
  const options = ["--allow-run-as-root", "--oversubscribe", "-n", "2", process.execPath, main];
  await start([...options, "worker", "-p", String(server.port), "--cores", "1", "--json"], "mpirun");
  const deadline = Date.now() + 20_000;
  for (;;) {
    const { stdout } = weft("top", "-p", String(server.port), "--once", "--json");
    const { workers } = JSON.parse(stdout) as { workers: { info: { mpi: { rank: number; size: number } | null } }[] };
    if (workers.length === 2) {
      assert.deepEqual(workers.map((w) => w.info.mpi?.rank).sort(), [0, 1]);
      break;
    }
    assert.ok(Date.now() < deadline, "they never came");
  }
  assert.match(program({ WEFT_CONNECT: `localhost:${server.port}`, WEFT_FORCE_SHARD: "1" }), /^cluster/);
});

test("worker: a number of cores and a list of cores are different options, and neither may be empty", () => {
  const refused: [args: string[], message: RegExp][] = [
    [["--cores", "0"], /"0" is not a whole number above 0/],
    [["--cores", "0-1"], /write --core-ids 0-1/],
    [["--cores", "0,1"], /write --core-ids 0,1/],
    [["--cores", "100000"], /this process may use \d+ cores/],
    [["--core-ids", "3-1"], /runs backwards; write 1-3/],
    [["--core-ids", ""], /not a list of cores/],
    [["--core-ids", "0-99999999999"], /not a list of cores/],
    [["--core-ids", "0", "--cores", "1"], /give one of them/],
  ];
  for (const [args, message] of refused) {
    const { status, stderr } = weft("worker", "-p", "1", ...args);
    assert.equal(status, 2, `${args.join(" ")}: ${stderr}`);
    assert.match(stderr, message);
  }
});
