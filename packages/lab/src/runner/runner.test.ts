// The runner on this machine: order, statuses, limits, and termination of real processes.
import assert from "node:assert/strict";
import { chmodSync, existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  parseRecord,
  type RunFile,
  type RunLogRecord,
  recordSchema,
  runFileSchema,
  type StudyFile,
  studyFileSchema,
  unknownFields,
} from "@weft/formats/internal";
import { attachTraces } from "../diagnosis/index.js";
import { studyFromScaleDirectory } from "../import/index.js";
import { launched, TestFolder, traceText } from "../trace/fixtures.testkit.js";
import { launcherRow } from "./launchers.js";
import { lastLines } from "./output.js";
import { checkTemplate, createStudyFolder, fillTemplate, PlanError, planRuns } from "./plan.js";
import { probeMessage, probeShutOut } from "./probe.js";
import { parseGpuLine } from "./sampler.js";
import { jobScript, shellWord, slurmTime } from "./slurm-script.js";
import { runStudy, type StudyEvent, type StudyOptions } from "./study.js";

function options(folder: TestFolder, command: string[], more: Partial<StudyOptions> = {}): StudyOptions {
  return {
    command,
    counts: [1, 2],
    repeats: 1,
    launcher: "local",
    parent: join(folder.path, "runs"),
    cwd: folder.path,
    env: process.env,
    site: {},
    warmupRuns: 0,
    sampleSeconds: 0.1,
    probe: false,
    graceSeconds: 1,
    ...more,
  };
}

const json = <T>(...parts: string[]): T => JSON.parse(readFileSync(join(...parts), "utf8")) as T;

function records(...parts: string[]): RunLogRecord[] {
  return readFileSync(join(...parts), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => {
      const parsed = parseRecord(line);
      assert.ok(parsed.ok, line);
      assert.deepEqual([parsed.dropped, unknownFields(recordSchema, parsed.record)], [[], []], line);
      return parsed.record;
    });
}

/** Alive and not a zombie. */
function alive(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
}

test("repeats are interleaved, every second one in reverse order", () => {
  assert.deepEqual(
    planRuns([4, 1, 2, 2], 2, 1).map((r) => [r.id, r.devices, r.order, r.warmup]),
    [
      ["warmup0", 1, 0, true],
      ["n1-r0", 1, 1, false],
      ["n2-r0", 2, 2, false],
      ["n4-r0", 4, 3, false],
      ["n4-r1", 4, 4, false],
      ["n2-r1", 2, 5, false],
      ["n1-r1", 1, 6, false],
    ],
  );
  assert.throws(() => planRuns([], 1), PlanError);
  assert.throws(() => planRuns([0], 1), /0 is not a device count/);
  assert.throws(() => planRuns([1], 0), /--repeats 0/);
});

test("{n} is replaced everywhere, and a command without it is refused", () => {
  assert.deepEqual(fillTemplate(["run", "-n{n}", "{n}x{n}"], 4), ["run", "-n4", "4x4"]);
  assert.throws(() => checkTemplate(["run"], [1, 2], false), /the command has no \{n\}/);
  checkTemplate(["run"], [1, 2], true);
  assert.throws(() => checkTemplate([], [1], false), /no command was given/);
});

test("each launcher starts the command in its own way", () => {
  const site = { partition: "gpu", cpusPerDevice: 4, gpusPerDevice: 1, devicesPerNode: 4 };
  assert.deepEqual(launcherRow("torchrun").command(["python", "train.py", "--x"], 2, {}), [
    "python",
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc_per_node=2",
    "train.py",
    "--x",
  ]);
  assert.deepEqual(launcherRow("srun").command(["./job", "{n}"], 8, site), [
    "srun",
    "--ntasks=8",
    "--nodes=2",
    "--partition=gpu",
    "--cpus-per-task=4",
    "--gpus-per-task=1",
    "./job",
    "8",
  ]);
});

test("a study records its runs, how they ended, and the utilization of the machine", async () => {
  using folder = new TestFolder();
  const events: StudyEvent[] = [];
  const command = ["sh", "-c", "echo out {n} $WEFT_DEVICES; echo err >&2; sleep 1.5"];
  const result = await runStudy(
    options(folder, command, { name: "s", warmupRuns: 1, warmup: 2, on: (e) => events.push(e) }),
  );
  assert.equal(result.canceled, false);
  const study = json<StudyFile>(result.folder, "study.json");
  assert.deepEqual([study.command, study.counts, study.warmup], [command, [1, 2], 2]);
  assert.deepEqual(readdirSync(join(result.folder, "runs")).sort(), ["n1-r0", "n2-r0"]);
  assert.ok(existsSync(join(result.folder, "warmup/warmup0/stdout.log")));
  for (const [schema, name] of [
    [runFileSchema, "runs/n2-r0/run.json"],
    [studyFileSchema, "study.json"],
  ] as const) {
    const written = json<object>(result.folder, name);
    assert.ok(schema.safeParse(written).success, name);
    assert.deepEqual(unknownFields(schema, written), [], name);
  }
  const file = json<RunFile>(result.folder, "runs/n2-r0/run.json");
  assert.deepEqual([file.status, file.exitCode, file.devices, file.order], ["ok", 0, 2, 2]);
  assert.ok(file.seconds! > 1.5 && file.seconds! < 15, String(file.seconds));
  assert.equal(readFileSync(join(result.folder, "runs/n2-r0/stdout.log"), "utf8"), "out 2 2\n");
  assert.equal(readFileSync(join(result.folder, "runs/n2-r0/stderr.log"), "utf8"), "err\n");
  const lines = records(result.folder, "runs/n2-r0/records.jsonl");
  assert.equal(lines[0].type, "run");
  assert.deepEqual(lines.at(-1), { ...lines.at(-1), type: "end", status: "ok", exitCode: 0 });
  const samples = lines.filter((r) => r.type === "sample");
  assert.ok(samples.length >= 2);
  assert.ok(
    samples.every((s) => s.host!.cpuPercent! >= 0 && s.host!.cpuPercent! <= 100 && s.host!.memoryUsedBytes! > 1e6),
  );
  assert.equal(samples[0].host!.processes, 2, "the shell and its sleep");
  assert.deepEqual(
    events.filter((e) => e.kind === "ended").map((e) => e.run.id),
    ["warmup0", "n1-r0", "n2-r0"],
  );
  assert.equal(studyFromScaleDirectory(result.folder).runs.length, 2);
});

test("a folder is never used twice", async () => {
  using folder = new TestFolder();
  const parent = join(folder.path, "runs");
  assert.equal(createStudyFolder(parent, "a"), join(parent, "a"));
  assert.equal(createStudyFolder(parent, "a"), join(parent, "a-2"));
  for (const name of ["../a", "a/b", "..", "", "x".repeat(300), "a\u0000"])
    assert.throws(() => createStudyFolder(parent, name), PlanError, name);
});

test("a command that fails at one of the counts keeps the others", async () => {
  using folder = new TestFolder();
  const { runs } = await runStudy(options(folder, ["sh", "-c", "exit $(({n} == 2 ? 3 : 0))"], { counts: [1, 2, 3] }));
  assert.deepEqual(
    runs.map((r) => [r.devices, r.status, r.exitCode, r.message]),
    [
      [1, "ok", 0, undefined],
      [2, "failed", 3, "the command ended with exit code 3"],
      [3, "ok", 0, undefined],
    ],
  );
});

test("an exit code of 0 does not hide a traceback, and of long output only the end is read", async () => {
  using folder = new TestFolder();
  const trace = 'Traceback (most recent call last):\\n  File "a.py", line 1\\nRuntimeError: out of memory\\n';
  const command = ["sh", "-c", `head -c 20000000 /dev/zero >&2; printf '\\n${trace}' >&2; exit $(({n} - 1))`];
  const { folder: home, runs } = await runStudy(options(folder, command, { counts: [1, 2] }));
  const told = records(home, "runs/n1-r0/records.jsonl").flatMap((r) =>
    r.type === "event" && r.name === "error-in-output" ? [r.message ?? ""] : [],
  );
  assert.match(told.join(), /exit code 0, but .* traceback: RuntimeError: out of memory/);
  assert.equal(runs[1].status, "failed");
  assert.deepEqual(lastLines(join(home, "runs/n2-r0/stderr.log"), 1), ["RuntimeError: out of memory"]);
});

test("a missing command and a killed command are reported", async () => {
  using folder = new TestFolder();
  const none = await runStudy(options(folder, ["no-such-command-{n}"], { counts: [1] }));
  assert.deepEqual(
    [none.runs[0].status, none.runs[0].message],
    ["failed", "the command no-such-command-1 was not found on PATH"],
  );
  const shot = await runStudy(options(folder, ["sh", "-c", "kill -9 $$"], { counts: [1] }));
  assert.deepEqual([shot.runs[0].status, shot.runs[0].signal], ["failed", "SIGKILL"]);
});

/** Ignores SIGTERM and starts a child in its own session that does too, as workers of torchrun may. */
const stubborn = (pids: string): string[] => [
  "bash",
  "-c",
  `trap '' TERM; setsid bash -c "trap '' TERM; echo \\$\\$ >> ${pids}; while :; do sleep 0.1; done" & echo $$ >> ${pids}; while :; do sleep 0.1; done`,
];

async function stubbornPids(path: string): Promise<number[]> {
  const deadline = performance.now() + 10_000;
  while (performance.now() < deadline) {
    const pids = existsSync(path) ? readFileSync(path, "utf8").trim().split("\n").map(Number) : [];
    if (pids.length === 2) return pids;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("the processes did not start");
}

test("at its time limit a run is terminated with all its processes", async () => {
  using folder = new TestFolder();
  const pids = join(folder.path, "pids");
  const running = runStudy(options(folder, stubborn(pids), { counts: [1], timeLimit: 1, graceSeconds: 0.3 }));
  const started = await stubbornPids(pids);
  assert.deepEqual(started.map(alive), [true, true]);
  const { runs } = await running;
  assert.equal(runs[0].status, "timeout");
  assert.match(runs[0].message!, /limit of 1 s/);
  assert.deepEqual(started.map(alive), [false, false]);
});

test("a canceled study terminates all processes, keeps its records and starts no further run", async () => {
  using folder = new TestFolder();
  const pids = join(folder.path, "pids");
  const abort = new AbortController();
  const running = runStudy(options(folder, [...stubborn(pids), "{n}"], { signal: abort.signal, graceSeconds: 0.3 }));
  const started = await stubbornPids(pids);
  abort.abort();
  const result = await running;
  assert.equal(result.canceled, true);
  assert.deepEqual(
    result.runs.map((r) => [r.id, r.status]),
    [["n1-r0", "canceled"]],
  );
  assert.deepEqual(started.map(alive), [false, false]);
  assert.deepEqual(readdirSync(join(result.folder, "runs")), ["n1-r0"]);
});

test("processes that outlive their run are terminated before the next one starts", async () => {
  using folder = new TestFolder();
  const pids = join(folder.path, "pids");
  const { folder: study } = await runStudy(
    options(folder, ["bash", "-c", `setsid sleep 60 & echo $! >> ${pids}; sleep 0.3`], { counts: [1] }),
  );
  const [pid] = readFileSync(pids, "utf8").trim().split("\n").map(Number);
  assert.equal(alive(pid), false);
  const left = records(study, "runs/n1-r0/records.jsonl").find((r) => r.type === "event" && r.name === "left-behind");
  assert.match(left!.type === "event" ? left!.message! : "", /still running when the command ended/);
});

test("GPUs are sampled with nvidia-smi, and unsupported fields are omitted", async () => {
  using folder = new TestFolder();
  const sampled = join(folder.path, "sampled");
  const smi = folder.file(
    "nvidia-smi",
    `#!/bin/bash
case "$*" in *driver_version*) echo "0, Test GPU, 81920, GPU-1, 550.1"; echo "1, Test GPU, 81920, GPU-2, 550.1";; *)
  while :; do echo "0, 87, 1024, 81920, 310.5, 1980, 61"; echo "1, 3, 512, 81920, [N/A], 210, 30"; sleep 0.05; touch ${sampled}; done;; esac`,
  );
  chmodSync(smi, 0o755);
  process.env["WEFT_NVIDIA_SMI"] = smi;
  try {
    const { folder: study } = await runStudy(
      options(folder, ["bash", "-c", `until [ -e ${sampled} ]; do sleep 0.05; done; sleep 2`], { counts: [1] }),
    );
    assert.deepEqual(json<StudyFile>(study, "study.json").machine!.devices, [
      { index: 0, name: "Test GPU", memoryBytes: 81920 * 2 ** 20, uuid: "GPU-1" },
      { index: 1, name: "Test GPU", memoryBytes: 81920 * 2 ** 20, uuid: "GPU-2" },
    ]);
    const sample = records(study, "runs/n1-r0/records.jsonl").find(
      (r) => r.type === "sample" && r.devices !== undefined,
    );
    assert.deepEqual(sample!.type === "sample" ? sample!.devices : null, [
      {
        index: 0,
        utilizationPercent: 87,
        memoryUsedBytes: 2 ** 30,
        memoryTotalBytes: 81920 * 2 ** 20,
        powerWatts: 310.5,
        smClockMHz: 1980,
        temperatureC: 61,
      },
      {
        index: 1,
        utilizationPercent: 3,
        memoryUsedBytes: 2 ** 29,
        memoryTotalBytes: 81920 * 2 ** 20,
        smClockMHz: 210,
        temperatureC: 30,
      },
    ]);
  } finally {
    delete process.env["WEFT_NVIDIA_SMI"];
  }
  assert.equal(parseGpuLine("garbage"), null);
});

test("traces in WEFT_TRACE_DIR become part of the run", async () => {
  using folder = new TestFolder();
  const trace = traceText(launched(1, { ts: 0, dur: 4 }, { name: "gemm", ts: 10, dur: 30 }), {
    distributedInfo: { rank: 0, world_size: 1 },
  });
  const file = folder.file("t.json", trace);
  const command = ["sh", "-c", `mkdir -p $WEFT_TRACE_DIR && cp ${file} $WEFT_TRACE_DIR/trace_rank0.json`];
  const { folder: study } = await runStudy(options(folder, command, { counts: [1] }));
  const read = studyFromScaleDirectory(study);
  await attachTraces(read);
  assert.deepEqual(
    read.runs[0].traces!.map((t) => [t.rank, t.spanUs, t.computeUs, t.kernels, t.launchUs]),
    [[0, 30, 30, 1, 4]],
  );
});

test("flags that disable the probe are detected", () => {
  const cases: [string[], RegExp | null][] = [
    [["python", "-E", "t.py"], /-E/],
    [["python3.11", "-uI", "t.py"], /-I/],
    [["env", "A=1", "/opt/venv/bin/python3", "-S", "-m", "x"], /-S/],
    [["python", "-W", "ignore", "-S", "t.py"], /-S/],
    [["bash", "-c", "python -E t.py"], /-E/],
    [["python", "-u", "t.py", "-E"], null],
    [["python", "-m", "mod", "-S"], null],
    [["python", "-W", "error", "t.py"], null],
    [["torchrun", "t.py"], null],
  ];
  for (const [command, expected] of cases) {
    const reason = probeShutOut(command);
    if (expected === null) assert.equal(reason, null, command.join(" "));
    else assert.match(reason ?? "none", expected, command.join(" "));
  }
  assert.match(probeMessage("absent", ["python", "t.py"])!, /not loaded/);
  assert.match(probeMessage("loaded", ["python", "t.py"])!, /saw no training step/);
  assert.equal(probeMessage("recorded", ["python", "t.py"]), null);
  assert.equal(probeMessage("absent", ["./job"]), null, "nothing is expected of a job that is not Python");
});

test("the job script has the options of the site and consistent task counts", () => {
  const script = jobScript({
    name: "weft-n8-r0",
    home: "/s/runs/n8-r0",
    cwd: "/work dir",
    command: ["torchrun", "--nproc_per_node=4", "--rdzv_endpoint=$MASTER_ADDR", "it's"],
    devices: 8,
    site: {
      partition: "gpu",
      account: "me",
      modules: ["cuda/12.4"],
      venv: ".venv",
      cpusPerDevice: 8,
      gpusPerDevice: 1,
      devicesPerNode: 4,
      extra: ["--exclusive"],
    },
    probe: true,
    sampleSeconds: 1,
    timeLimit: 1800,
  });
  for (const line of [
    "#SBATCH --nodes=2",
    "#SBATCH --ntasks-per-node=1",
    "#SBATCH --partition=gpu",
    "#SBATCH --account=me",
    "#SBATCH --cpus-per-task=32",
    "#SBATCH --gres=gpu:4",
    "#SBATCH --time=00:31:00",
    "#SBATCH --exclusive",
    "cd '/work dir' || exit 1",
    "module load cuda/12.4",
    "source .venv/bin/activate",
    "export WEFT_PROBE_DIR=/s/runs/n8-r0",
  ])
    assert.ok(script.split("\n").includes(line), line);
  assert.match(script, /scontrol show hostnames/);
  assert.equal(shellWord("it's"), "'it'\\''s'");
  assert.equal(slurmTime(3661), "01:02:00");
});
