// YAML files: those of other programs' guides are translated, the schemas accept what the readers accept, and wrong names get a
// suggestion everywhere.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { testPython } from "@weft/testing/python";
import { parse } from "yaml";
import { fileKindOf, fileKinds } from "../commands/file-kinds.js";
import { schemaText } from "../commands/schema.js";

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
const root = fileURLToPath(new URL("../../../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "weft-files-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const call = (...args: string[]): { status: number | null; stdout: string; stderr: string } =>
  spawnSync(process.execPath, [weft, ...args], { encoding: "utf8", cwd: folder, timeout: 120_000 });
function file(name: string, text: string): string {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
}

/** The keys and values of a data-parallel training guide and of a meta-learning guide, as they print them. */
const ddp = `model: { d_model: 256, n_heads: 8, num_layers: 4, dim_feedforward: 1024, max_seq_len: 256 }
training:
  batch_size: 128     # global
data:
  num_workers: 4
`;
const metaFiles: [yaml: string, explained: RegExp][] = [
  [
    "tasks_per_batch: 200\nval_tasks: 100\ninner_steps: 10\n",
    /training: tolerance.*one iteration: 200 tasks, 10 steps/s,
  ],
  [
    "tasks_per_batch: 16\nval_tasks: 20\ninner_steps: 5\ndt_training: 0.02\nuse_rk4_training: false\n",
    /training: dt = 0.02 -> euler.*16 tasks, 5 steps/s,
  ],
  [
    "dt_training: 0.02\nuse_rk4_training: false\ntasks_per_batch: 16-32\ninner_steps: 5\n",
    /dt = 0.02 -> euler.*16 tasks, 5 steps/s,
  ],
  [
    "dt_training: 0.01\nuse_rk4_training: true\ntasks_per_batch: 8-16\ninner_steps: 10\n",
    /dt = 0.01 -> rk4.*8 tasks, 10 steps/s,
  ],
  [
    "dt_training: 0.01\nuse_rk4_training: true\ntasks_per_batch: 4\ninner_steps: 3\nn_iterations: 50\n",
    /dt = 0.01 -> rk4.*4 tasks, 3 steps/s,
  ],
];

test("the configuration of a data-parallel guide is accepted, its batch is the one of all devices", () => {
  const path = file("ag_news_ddp_4gpu_20ep_optimized.yaml", ddp);
  const script = join(folder, "job.sh");
  const { status, stderr } = call("train", path, "--devices", "4", "--slurm", script);
  assert.equal(status, 0, stderr);
  for (const line of [
    "training.batch_size: 128 -> training.global_batch: 128",
    "data.num_workers: 4 -> data.loaders: 4",
    'not given -> data.dataset: "ag_news" (assumed)',
    "not given -> training.epochs: 20 (assumed)",
  ])
    assert.ok(stderr.includes(line), `${line}\n${stderr}`);
  // Without a data set in its name the file says what is missing.
  const other = call("train", file("mine.yaml", ddp), "--slurm", script);
  assert.equal(other.status, 1);
  assert.match(other.stderr, /data\.dataset is missing/);
  assert.equal(call("train", join(folder, "mine.yaml"), "--slurm", script, "--set", "data.dataset=imdb").status, 0);
});

test("the settings of a meta-learning guide are accepted with a printed translation", () => {
  metaFiles.forEach(([yaml, explained], i) => {
    const { status, stdout, stderr } = call("quantum", "meta", file(`meta${i}.yaml`, yaml), "--explain");
    assert.equal(status, 0, stderr);
    assert.match(stdout, explained);
    for (const key of yaml.matchAll(/^(\w+):/gm)) assert.ok(stderr.includes(`  ${key[1]}: `), `${key[1]}\n${stderr}`);
  });
});

test("wrong keys, options, commands and kinds always get a suggestion", () => {
  const tiny = file(
    "tiny.yaml",
    "name: x\nmodel: m.mjs\ntraining: {epochs: 1, global_batch: 2}\noptimizer: {learn_rate: 1}\n",
  );
  const cases: [args: string[], message: RegExp][] = [
    [["trian"], /did you mean train/],
    [["qqqqqq"], /commands: scale, analyze/],
    [["quantum", "rnu"], /did you mean run/],
    [["train", tiny, "--epoch", "3"], /did you mean --epochs/],
    [["train", tiny, "--gpus", "3"], /did you mean --devices/],
    [["train", tiny, "--zzzzzz"], /options: --devices/],
    [["schema", "quantum-gates"], /did you mean quantum-gate/],
    [["train", tiny], /optimizer\.learn_rate is not known; did you mean optimizer\.learning_rate/],
    [["train", tiny, "--set", "zzz.qqq=1"], /zzz is not known; known keys/],
    [["train", tiny, "--set", "epochs"], /"epochs" is not key=value/],
    [["quantum", "meta", file("m.yaml", "task_per_bach: 3\n")], /there is no key "task_per_bach"; known keys/],
    [["quantum", "meta", file("n.yaml", "iteration: 3\n")], /there is no key "iteration"; did you mean iterations/],
    [["quantum", "run", file("g.yaml", "device: {chains: {qubits: 1}}\n")], /did you mean "chain"/],
  ];
  for (const [args, message] of cases) {
    const { status, stderr } = call(...args);
    assert.notEqual(status, 0, args.join(" "));
    assert.match(stderr, message, args.join(" "));
  }
});

/** Every YAML file of the repository that a command reads, with its kind. */
const ownFiles = ["configs", "examples/quantum"].flatMap((place) =>
  readdirSync(join(root, place))
    .filter((name) => name.endsWith(".yaml"))
    .map((name) => join(root, place, name)),
);
const examples: Record<string, string> = {
  "quantum-control":
    "problem: {kind: flip, segments: 20}\ntasks: gamma\nobjective: {cvar: 0.1}\nintegration: {tolerance: 1.0e-7}",
  study: "studies: [{name: a, samples: 10, runs: [{dir: x, devices: 1}]}]",
  sharding: "scopes: {encoder: {shard: {axis: 0, devices: 2}, scopes: {inner: {shard: {axis: 1}}}}}",
  "quantum-meta":
    "inner: {steps: 3}\nproblem: {kind: flip, segments: 20}\ntasks: {kind: rates, dephasing: [0.1, 0.2], relaxation: 0.1}",
};

test("weft lint checks Weft's own files with the readers of their commands", () => {
  const good = call("lint", ...ownFiles);
  assert.equal(good.status, 0, good.stdout);
  const broken = ownFiles.map((path, i) => {
    const text = readFileSync(path, "utf8");
    return file(`broken${i}.yaml`, `${text}\nzzz: 1\n`);
  });
  const { problems } = JSON.parse(call("lint", "--json", ...broken).stdout) as { problems: { file: string }[] };
  for (const path of broken)
    assert.ok(
      problems.some((p) => p.file === path),
      readFileSync(path, "utf8"),
    );
  // Files of other programs are not Weft's; that one was hardly checked is said.
  assert.equal(fileKindOf(parse(ddp)), null);
  const almost = file("almost.yaml", "dataset: csv\npath: texts.csv\n");
  assert.match(call("lint", almost).stdout, /not recognized .*almost\.yaml/);
  const strict = call("lint", "--as", "train", almost);
  assert.equal(strict.status, 1);
  assert.match(strict.stdout, /it is called data\.dataset/);
});

const { python, skip } = testPython("jsonschema", "JSON Schemas are not checked by an independent validator");
test("an independent validator accepts Weft's files by their schemas, and rejects wrong ones", { skip }, async () => {
  for (const kind of Object.keys(fileKinds)) writeFileSync(join(folder, `${kind}.json`), await schemaText(kind));
  const all = [...ownFiles, ...Object.entries(examples).map(([kind, text]) => file(`${kind}.yaml`, text))];
  const cases = all.map((path) => {
    const value: unknown = parse(readFileSync(path, "utf8"));
    return { path, value, kind: fileKindOf(value) };
  });
  assert.deepEqual(new Set(cases.map((c) => c.kind)), new Set(Object.keys(fileKinds)));
  const program = `
import json, sys, jsonschema
for case in json.load(sys.stdin):
    schema = json.load(open(sys.argv[1] + "/" + case["kind"] + ".json"))
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    value = case["value"]
    errors = [e.message[:300] for e in check.iter_errors(value)]
    assert not errors, (case["path"], errors)
    value["zzz"] = 1
    assert case["kind"] == "study" or case["kind"] == "sharding" or list(check.iter_errors(value)), case["path"]
`;
  const ran = spawnSync(python, ["-c", program, folder], { input: JSON.stringify(cases), encoding: "utf8" });
  assert.equal(ran.status, 0, ran.stderr);
});
