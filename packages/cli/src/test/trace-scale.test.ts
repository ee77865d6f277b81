// The commands trace and scale: fields of --json, exit codes, messages, Ctrl-C.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const bin = join(dirname(fileURLToPath(import.meta.url)), "../../bin/weft.js");
const folder = mkdtempSync(join(tmpdir(), "weft-cli-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function weft(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, [bin, ...args], { cwd: folder, encoding: "utf8", timeout: 60_000 });
}

function file(name: string, content: string | Uint8Array): string {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
}

/** Two kernels and an all-reduce of which half hides behind the second kernel. */
const trace = (rank: number, gemm: number): string => {
  const kernel = (name: string, id: number, ts: number, dur: number, stream: number): object[] => [
    {
      ph: "X",
      cat: "cuda_runtime",
      name: "cudaLaunchKernel",
      pid: 9,
      tid: 9,
      ts: ts - 4,
      dur: 2,
      args: { correlation: id },
    },
    { ph: "X", cat: "kernel", name, pid: 0, tid: stream, ts, dur, args: { stream, correlation: id } },
  ];
  return JSON.stringify({
    distributedInfo: { rank, world_size: 2 },
    traceEvents: [...kernel("gemm", 1, 100, gemm, 7), ...kernel("ncclAllReduce", 2, 100 + gemm - 50, 100, 20)],
  });
};

test("trace --json prints the documented fields", () => {
  const done = weft(
    "trace",
    file("rank0.json", trace(0, 200)),
    file("rank1.json.gz", gzipSync(trace(1, 200))),
    "--json",
  );
  assert.equal(done.status, 0, done.stderr);
  const report = JSON.parse(done.stdout) as { ranks: Record<string, unknown>[]; missingRanks: number[] };
  assert.deepEqual(
    report.ranks.map(({ rank, idleUs, computeUs, nonComputeUs, spanUs, overlapPercent }) => ({
      rank,
      idleUs,
      computeUs,
      nonComputeUs,
      spanUs,
      overlapPercent,
    })),
    [0, 1].map((rank) => ({ rank, idleUs: 0, computeUs: 200, nonComputeUs: 50, spanUs: 250, overlapPercent: 50 })),
  );
  assert.deepEqual(report.missingRanks, []);
});

test("trace prints tables, writes files, and does not overwrite a merged trace", () => {
  const input = file("rank0.json", trace(0, 200));
  const done = weft("trace", input, "--out", "report");
  assert.equal(done.status, 0);
  assert.match(done.stdout, /rank {2}on .*idle .*compute/);
  assert.match(done.stdout, /0 +gpu +250 us +0\.0% +80\.0% +20\.0% +50\.0% +50 us/);
  assert.match(done.stderr, /traces of rank 1 are missing/);
  assert.deepEqual(readdirSync(join(folder, "report")).sort(), [
    "collectives.csv",
    "kernels.csv",
    "merged.json.gz",
    "operators.csv",
    "ranks.csv",
    "report.json",
  ]);
  assert.match(
    readFileSync(join(folder, "report/kernels.csv"), "utf8"),
    /^rank,name,type,count,sum_us.*\n0,gemm,COMPUTATION,1,200,200,200,200,0\n/,
  );
  const again = weft("trace", input, "--merged", "report/merged.json.gz");
  assert.equal(again.status, 1);
  assert.match(again.stderr, /exists already/);
});

test("trace --diff ranks what changed", () => {
  const done = weft("trace", file("a.json", trace(0, 200)), "--diff", file("b.json", trace(0, 300)));
  assert.equal(done.status, 0);
  assert.match(done.stdout, /gemm +increased +200 us +300 us +100 us/);
});

test("errors of trace name the problem of the input and the remedy", () => {
  assert.deepEqual([weft("trace").status, weft("trace", "--top", "0", file("x.json", trace(0, 10))).status], [2, 2]);
  const none = weft("trace", "nowhere.json");
  assert.deepEqual([none.status, none.stderr], [1, "weft: nowhere.json does not exist\n"]);
  const cut = weft("trace", file("cut.json", trace(0, 200).slice(0, -60)), "--json");
  assert.equal(cut.status, 0, "what is whole is still used");
  assert.match(cut.stderr, /cut\.json: the file ends inside its events, at byte \d+: 3 events/);
  assert.equal((JSON.parse(cut.stdout) as { ranks: { complete: boolean }[] }).ranks[0].complete, false);
  const empty = weft("trace", file("empty.json", '{"traceEvents":[]}'));
  assert.equal(empty.status, 1);
  assert.match(empty.stderr, /there is nothing to measure/);
});

test("scale: wrong usage and a failed run have different exit codes", () => {
  const cases: [string[], RegExp][] = [
    [["scale", "--", "true"], /no device counts were given/],
    [["scale", "--devices", "1,2", "--", "true"], /the command has no \{n\}/],
    [["scale", "--devices", "0", "--", "true"], /not a count from 1/],
    [["scale", "--devices", "1,2"], /no command was given/],
    [["scale", "--devices", "1", "--time-limit", "soon", "--", "true"], /90s, 30m, 2h/],
    [["scale", "--attach", "nowhere"], /holds no submitted study/],
  ];
  for (const [args, message] of cases) {
    const done = weft(...args);
    assert.equal(done.status, 2, `${args.join(" ")}: ${done.stderr}`);
    assert.match(done.stderr, message);
  }
  assert.ok(!existsSync(join(folder, "runs")), "nothing is made before the arguments are right");
  const failing = weft("scale", "--devices", "1,2", "--no-pictures", "--", "sh", "-c", "echo no luck >&2; exit {n}");
  assert.equal(failing.status, 1);
  assert.match(failing.stderr, /n1-r0 \(1 device\) failed: the command ended with exit code 1\n {2}no luck/);
  assert.match(failing.stderr, /no run ended well/);
});

test("scale: a command that fails at one of the counts keeps the others", () => {
  const done = weft(
    "scale",
    "--devices",
    "1",
    "2",
    "4",
    "--no-pictures",
    "--json",
    "--name",
    "partly",
    "--",
    "sh",
    "-c",
    "sleep 0.2; test {n} -ne 4",
  );
  // On a busy machine the times may differ enough to be undecided (4).
  assert.ok(done.status === 0 || done.status === 4, done.stderr);
  const { folder: study, studies } = JSON.parse(done.stdout) as {
    folder: string;
    studies: { runs: { devices: number; status: string }[]; scaling: { devices: number }[] }[];
  };
  assert.ok(study.endsWith("/runs/partly"));
  assert.deepEqual(
    studies[0].runs.map((r) => [r.devices, r.status]),
    [
      [1, "ok"],
      [2, "ok"],
      [4, "failed"],
    ],
  );
  assert.deepEqual(
    studies[0].scaling.map((p) => p.devices),
    [1, 2],
  );
});

test("scale: --dry-run writes sbatch scripts without submitting", () => {
  const done = weft(
    "scale",
    "--devices",
    "1,2",
    "--launcher",
    "sbatch",
    "--dry-run",
    "--partition",
    "gpu",
    "--modules",
    "cuda,python",
    "--gpus-per-device",
    "1",
    "--name",
    "dry",
    "--",
    "torchrun",
    "--nproc_per_node={n}",
    "t.py",
  );
  assert.equal(done.status, 0, done.stderr);
  const script = readFileSync(join(folder, "runs/dry/runs/n2-r0/job.sh"), "utf8");
  assert.match(script, /#SBATCH --gres=gpu:2\n/);
  assert.match(script, /module load cuda\nmodule load python\n/);
  assert.match(script, /\ntorchrun --nproc_per_node=2 t\.py &\n/);
});

test("scale: Ctrl-C terminates the run, keeps the measurements, and prints their folder", async () => {
  const child = spawn(
    process.execPath,
    [
      bin,
      "scale",
      "--devices",
      "1,2",
      "--no-pictures",
      "--name",
      "stopped",
      "--",
      "sh",
      "-c",
      "test {n} = 1 || exec sleep 987",
    ],
    { cwd: folder, stdio: ["ignore", "ignore", "pipe"] },
  );
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const exited = new Promise<number | null>((resolve) => child.on("close", (code) => resolve(code)));
  const log = join(folder, "runs/stopped/runs/n2-r0/stdout.log");
  const deadline = performance.now() + 20_000;
  while (!existsSync(log) && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 50));
  await new Promise((resolve) => setTimeout(resolve, 300));
  child.kill("SIGINT");
  assert.equal(await exited, 1);
  assert.match(stderr, /stopped; what was measured is in .*runs\/stopped/);
  const status = (id: string): string =>
    (JSON.parse(readFileSync(join(folder, "runs/stopped/runs", id, "run.json"), "utf8")) as { status: string }).status;
  assert.deepEqual([status("n1-r0"), status("n2-r0")], ["ok", "canceled"]);
  const left = readdirSync("/proc").filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8") === "sleep\u0000987\u0000";
    } catch {
      return false;
    }
  });
  assert.deepEqual(left, []);
});
