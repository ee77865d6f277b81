import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

const bin = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
const experiments = fileURLToPath(new URL("../../../lab/testdata/ddp_experiments", import.meta.url));
const home = mkdtempSync(join(tmpdir(), "weft-cli-"));
after(() => rmSync(home, { recursive: true }));

function weft(...args: string[]) {
  const env = { ...process.env, WEFT_LEDGER: join(home, "ledger.jsonl") };
  const { status, stdout, stderr } = spawnSync(process.execPath, [bin, ...args], { cwd: home, encoding: "utf8", env });
  return { status, stdout, stderr };
}
const put = (name: string, text: string): string => {
  writeFileSync(join(home, name), text);
  return join(home, name);
};

test("analyze --json prints the documented fields and writes no files", () => {
  const { status, stdout } = weft("analyze", experiments, "--json", "--warmup", "1", "--datasets", "IMDB", "AGNews");
  assert.equal(status, 3);
  const { studies } = JSON.parse(stdout);
  assert.deepEqual(
    studies.map((s: { name: string }) => s.name),
    ["IMDB", "AGNews"],
  );
  const [imdb, agnews] = studies;
  assert.deepEqual(
    imdb.runs.map((r: { id: string; devices: number }) => [r.id, r.devices]),
    [
      ["exp020_imdb_single_gpu_20ep", 1],
      ["exp021_imdb_ddp_single_node_20ep", 4],
    ],
  );
  assert.equal(imdb.runs[0].epochSeconds.mean.toFixed(4), "11.1984");
  assert.equal(imdb.runs[1].epochSeconds.n, 19);
  assert.equal(imdb.scaling[1].speedup.toFixed(2), "3.49");
  assert.equal(imdb.scaling[1].valid, true);
  assert.equal(agnews.scaling[1].valid, false);
  assert.equal(agnews.scaling[1].workSpeedup.toFixed(2), "1.85");
  assert.equal(agnews.status, "not valid");
  assert.deepEqual(
    agnews.findings.map((f: { id: string; severity: string }) => [f.id, f.severity]),
    [
      ["two-jobs-in-one-file", "invalid"],
      ["work-not-divided", "unresolved"],
    ],
  );
  for (const key of ["id", "severity", "evidence", "cause", "fix", "predicted", "refutedBy"])
    assert.ok(key in agnews.findings[0], key);
  assert.equal(existsSync(join(home, "weft-report")), false);
  assert.equal(existsSync(join(home, "ledger.jsonl")), false);
});

test("analyze writes files, a database for SQL queries, and the ledger", () => {
  const out = join(home, "out");
  const db = join(home, "lab.duckdb");
  const { status, stdout } = weft(
    "analyze",
    experiments,
    "--no-pictures",
    "--out",
    out,
    "--db",
    db,
    "--sql",
    "SELECT study, count(*) AS findings FROM findings GROUP BY study",
  );
  assert.equal(status, 3, "a study that is not valid");
  assert.match(stdout, /IMDB: valid, 3\.49x on 4 devices \(87\.3%\)/);
  assert.match(
    stdout,
    /AGNews: NOT VALID as a scaling result \(two-jobs-in-one-file\); on 4 devices either .* 1\.85x \(likelihood \d+%\), or .* 0\.46x/,
  );
  assert.match(stdout, /AGNews +2\n/);
  assert.ok(existsSync(join(out, "performance_report.txt")) && !existsSync(join(out, "report.html")));
  assert.match(weft("ledger").stdout, /AGNews +work-not-divided +4 +10\.57 s/);
});

test("predict gives intervals or the reason for none, accepts both notations of counts, and reads studies", () => {
  const points = put("points.json", '{"metric": "throughput", "points": [[1, 364.27], [4, 1432.73]]}');
  const { predictions } = JSON.parse(weft("predict", points, "--at", "8,64", "--json").stdout);
  assert.deepEqual(
    predictions.map((p: { devices: number }) => p.devices),
    [8, 64],
  );
  assert.ok(predictions[0].interval[0] < 2838.76 && 2838.76 < predictions[0].interval[1]);
  assert.equal(predictions[1].interval, null);
  assert.match(predictions[1].reason, /no prediction/);
  assert.deepEqual(JSON.parse(weft("predict", points, "--at", "8", "64", "--json").stdout).predictions, predictions);
  assert.match(
    weft("predict", points, "--at", "8", "--devices-per-node", "4").stdout,
    /no prediction: 8 devices span 2 nodes of 4/,
  );
  const out = join(home, "predicted");
  assert.equal(weft("predict", points, "--at", "8,64", "--out", out).status, 0);
  assert.match(readFileSync(join(out, "predictions.csv"), "utf8"), /^devices,throughput,low_80,high_80,reason\n8,/);
  assert.match(readFileSync(join(out, "predictions.svg"), "utf8"), />no prediction|no interval</);
  assert.ok(readFileSync(join(out, "predictions.png")).length > 5000);
  const study = weft("predict", experiments, "--study", "IMDB", "--at", "8", "--json");
  assert.equal(JSON.parse(study.stdout).predictions[0].value.toFixed(2), "1.69");
  const invalid = weft("predict", experiments, "--study", "AGNews", "--at", "8");
  assert.equal(invalid.status, 3);
  assert.match(invalid.stderr, /AGNews is not valid as a scaling result \(two-jobs-in-one-file\)/);
});

test("diagnose and lint print findings, write files and set exit codes", () => {
  const out = join(home, "diag");
  const { status, stdout } = weft("diagnose", experiments, "--json", "--out", out);
  assert.equal(status, 3);
  assert.deepEqual(
    JSON.parse(stdout).studies[1].findings.map((f: { id: string }) => f.id),
    ["two-jobs-in-one-file", "work-not-divided"],
  );
  assert.match(readFileSync(join(out, "findings.txt"), "utf8"), /DistributedSampler/);
  const script = put("job.sh", "#SBATCH --ntasks=4 --gres=gpu:4\nsrun torchrun --nproc_per_node=4 t.py\n");
  const lint = weft("lint", script);
  assert.equal(lint.status, 1);
  assert.match(
    lint.stdout,
    /job\.sh:2: error: srun starts 4 tasks per node and each torchrun starts 4 processes: 16 processes for 4 GPUs/,
  );
  assert.equal(weft("lint", put("fine.yaml", "a: 1\n")).status, 0);
});

test("wrong usage exits with 2, a failure with 1, both with a message", () => {
  const cases: [string[], number, RegExp][] = [
    [["analyze"], 2, /missing required argument/],
    [["analyze", experiments, "--warmup", "x"], 2, /--warmup x is not a count/],
    [["analyze", experiments, "--sql", "SELECT 1"], 2, /--sql needs --db/],
    [["analyze", join(home, "nowhere")], 1, /nowhere: no such file or directory/],
    [["analyze", experiments, "--datasets", "MNIST"], 1, /no study named MNIST; there are: IMDB, AGNews/],
    [["predict", "x.json"], 2, /--at/],
    [["predict", put("p2.json", "{"), "--at", "8"], 1, /p2\.json: not valid JSON/],
    [["predict", put("p3.json", "{}"), "--at", "8"], 1, /metric is undefined/],
    [["predict", put("p4.json", "{}"), "--at", "0"], 2, /"0" is not a count/],
    [["predict", "p4.json", "--at", "8", "--global-batch", "0"], 2, /"0" is not a number of samples/],
    [["diagnose", put("empty.jsonl", "")], 0, /^$/],
    [["lint", "absent.sh"], 1, /^$/],
  ];
  for (const [args, code, message] of cases) {
    const { status, stderr } = weft(...args);
    assert.equal(status, code, `${args.join(" ")}: ${stderr}`);
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /\n {4}at /);
  }
});

test("every command's help has an example", () => {
  for (const command of ["analyze", "diagnose", "predict", "lint", "ledger"]) {
    const { status, stdout } = weft(command, "--help");
    assert.equal(status, 0);
    assert.match(stdout, new RegExp(`Examples:\\n  weft ${command}`));
  }
});
