// The probe inside Python processes: it chains another sitecustomize, fails silently, stays inactive when disabled, and records
// which keys of a configuration were read. test/real-jobs covers PyTorch and JAX.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { probeFactsSchema, recordSchema, unknownFields } from "@weft/formats/internal";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { probeEnvironment, probeFolder, probeState } from "./probe.js";

const hasPython = spawnSync("python3", ["--version"]).status === 0;
const skip = hasPython ? false : "there is no python3 here";

function python(folder: TestFolder, code: string, flags: string[] = [], env: Record<string, string> = {}) {
  const home = join(folder.path, "run");
  if (!existsSync(home)) mkdirSync(home);
  const done = spawnSync("python3", [...flags, "-c", code], {
    encoding: "utf8",
    env: { ...process.env, ...probeEnvironment(home, { PYTHONPATH: folder.path }), ...env },
  });
  return { home, ...done };
}

/** The records of a file. Each must match the schema, without fields that the schema does not name. */
function lines(path: string): Record<string, unknown>[] {
  return readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => {
      const record = JSON.parse(line) as Record<string, unknown>;
      assert.ok(recordSchema.safeParse(record).success, line);
      assert.deepEqual(unknownFields(recordSchema, record), [], line);
      return record;
    });
}

test("another sitecustomize is still loaded, once", { skip }, () => {
  using folder = new TestFolder();
  folder.file(
    "sitecustomize.py",
    "import builtins; builtins.count = getattr(builtins, 'count', 0) + 1; here = __file__",
  );
  const done = python(folder, "import builtins, sitecustomize; print(builtins.count, sitecustomize.here)");
  assert.equal(done.stdout, `1 ${join(folder.path, "sitecustomize.py")}\n`);
  assert.equal(done.stderr, "");
  assert.equal(probeState(done.home), "loaded");
});

test("-E, -I and -S disable the probe, and its state shows that", { skip }, () => {
  for (const flag of ["-E", "-I", "-S"]) {
    using folder = new TestFolder();
    const done = python(folder, "print('ran')", [flag]);
    assert.equal(done.stdout, "ran\n");
    assert.equal(probeState(done.home), "absent", flag);
  }
});

test("manually annotated steps are recorded; a failing job records its exception", { skip }, () => {
  using folder = new TestFolder();
  const done = python(
    folder,
    `
import time, weft_probe
for i in range(3):
    with weft_probe.step(samples=10, epoch=1, loss=0.5):
        time.sleep(0.01)
raise ValueError("broken on purpose")`,
    [],
    { RANK: "2", WORLD_SIZE: "4", LOCAL_RANK: "1" },
  );
  assert.equal(done.status, 1);
  assert.match(done.stderr, /ValueError: broken on purpose/);
  const records = lines(join(done.home, "rank2.jsonl"));
  assert.deepEqual([records[0]["rank"], records[0]["worldSize"], records[0]["localRank"]], [2, 4, 1]);
  const steps = records.filter((r) => r["type"] === "step");
  assert.deepEqual(
    steps.map((s) => [s["step"], s["samples"], s["epoch"], s["loss"]]),
    [0, 1, 2].map((i) => [i, 10, 1, 0.5]),
  );
  assert.ok(steps.every((s) => (s["durationUs"] as number) >= 10_000 && (s["durationUs"] as number) < 1e6));
  const end = records.at(-1)!;
  assert.deepEqual([end["type"], end["status"], end["message"]], ["end", "failed", "ValueError: broken on purpose"]);
});

test("every record that the probe can write matches the schema", { skip }, () => {
  using folder = new TestFolder();
  const done = python(
    folder,
    `
import weft_probe
r = weft_probe.recorder
nan, inf = float("nan"), float("inf")
r.step(1, 0.0, 0.5, 0.1, 32, 0.2, 0.1, 0.7, True, False)
for loss in (None, nan, inf, -inf, 1e-30):
    r.step(1, 0.0, 0.5, 0.1, 32, 0.2, 0.1, loss, True, False)
    r.step(None, 0.0, 0.5, None, None, None, None, loss, False, True)
r.record("epoch", epoch=1, seconds=0.5, steps=3, samples=96, trainLoss=0.5)
r.event("note", "warning", "message", {"any": [1, None]})
r.fact(framework="torch", cores=2, visibleDevices=["0"], ddpBucketBytes=[1, 2], learningRate=None, tf32=False)
r.error("a problem")
`,
  );
  assert.equal(done.stderr, "");
  const records = lines(join(done.home, "rank0.jsonl"));
  assert.deepEqual([...new Set(records.map((r) => r["type"]))].sort(), [
    "end",
    "epoch",
    "event",
    "facts",
    "rank",
    "step",
  ]);
  assert.equal(records.filter((r) => r["type"] === "step").length, 11);
});

test("every fact that the sources of the probe name is a field of the schema", { skip }, () => {
  const walk = `
import ast, glob, json, sys
names = set()
for path in glob.glob(sys.argv[1] + "/*.py"):
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fact":
            names.update(k.arg for k in node.keywords if k.arg)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "facts":
            if isinstance(node.value, ast.Dict): names.update(k.value for k in node.value.keys)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "facts":
            names.add(node.slice.value)
print(json.dumps(sorted(names)))
`;
  const done = spawnSync("python3", ["-c", walk, probeFolder], { encoding: "utf8" });
  assert.equal(done.stderr, "");
  const names = JSON.parse(done.stdout) as string[];
  assert.ok(names.length > 40, String(names.length));
  assert.deepEqual(
    names.filter((name) => !Object.hasOwn(probeFactsSchema.shape, name)),
    [],
  );
});

test("a probe that cannot write or fails internally does not affect the job", { skip }, () => {
  using folder = new TestFolder();
  const step = "import weft_probe\nwith weft_probe.step(): pass\nprint('fine')";
  const unwritable = python(folder, step, [], { WEFT_PROBE_DIR: "/nowhere/at/all" });
  assert.deepEqual([unwritable.status, unwritable.stdout, unwritable.stderr], [0, "fine\n", ""]);
  const broken = python(
    folder,
    "import weft_probe\nweft_probe.place_facts = None\nwith weft_probe.step(): pass\nprint('fine')",
  );
  assert.deepEqual([broken.status, broken.stdout, broken.stderr], [0, "fine\n", ""]);
  const facts = lines(join(broken.home, "rank0.jsonl")).find((r) => r["type"] === "facts")!["facts"] as Record<
    string,
    unknown
  >;
  assert.match(String((facts["probeErrors"] as string[])[0]), /step: TypeError/);
});

test("a second process of the same rank does not write into the first one's file", { skip }, () => {
  using folder = new TestFolder();
  const step = "import weft_probe\nwith weft_probe.step(): pass";
  python(folder, step);
  const before = readFileSync(join(folder.path, "run/rank0.jsonl"), "utf8");
  const second = python(folder, step);
  assert.equal(readFileSync(join(second.home, "rank0.jsonl"), "utf8"), before);
});

const fakeYaml = `
class _D:
    @classmethod
    def add_representer(cls, kind, function): cls.kind = kind
SafeDumper = Dumper = _D
import json
def safe_load(stream): return json.load(stream)
`;

test("the keys of a configuration that were read are recorded", { skip }, () => {
  using folder = new TestFolder();
  folder.file("yaml.py", fakeYaml);
  const config = {
    training: { epochs: 3, batch_size: 32, gradient_clip: 1 },
    logging: { interval: 10 },
    model: { d: 4, h: 2 },
    seed: 1,
  };
  writeFileSync(join(folder.path, "config.yaml"), JSON.stringify(config));
  const done = python(
    folder,
    `
import copy, json, pickle, sys, weft_probe, yaml
c = yaml.safe_load(open(${JSON.stringify(join(folder.path, "config.yaml"))}))
def f(d, h): return d * h
c["training"]["epochs"]; c["training"].get("batch_size", 1); c.get("missing"); f(**c["model"])
plain = ${JSON.stringify(config)}
assert c == plain and isinstance(c, dict) and json.loads(json.dumps(c)) == plain
assert type(pickle.loads(pickle.dumps(c["training"]))) is dict and type(copy.deepcopy(c)["training"]) is dict
with weft_probe.step(): pass
`,
  );
  assert.equal(done.status, 0, done.stderr);
  // The comparisons above read every key, so the keys are checked in a program without them.
  using other = new TestFolder();
  other.file("yaml.py", fakeYaml);
  const path = other.file("config.yaml", JSON.stringify(config));
  const read = python(
    other,
    `
import weft_probe, yaml
c = yaml.safe_load(open(${JSON.stringify(path)}))
def f(d, h): return d * h
c["training"]["epochs"]; c["training"].get("batch_size", 1); c.get("missing"); f(**c["model"])
with weft_probe.step(): pass
`,
  );
  assert.equal(read.status, 0, read.stderr);
  const facts = lines(join(read.home, "rank0.jsonl"))
    .filter((r) => r["type"] === "facts")
    .reduce((all, r) => Object.assign(all, r["facts"]), {}) as {
    configs: { file: string; keys: string[]; read: string[] }[];
  };
  assert.deepEqual(facts.configs, [
    {
      file: path,
      keys: [
        "training.epochs",
        "training.batch_size",
        "training.gradient_clip",
        "logging.interval",
        "model.d",
        "model.h",
        "seed",
      ],
      read: ["model.d", "model.h", "training.batch_size", "training.epochs"],
    },
  ]);
});

test("the probe folder of the package exists", () => {
  assert.ok(existsSync(join(probeFolder, "sitecustomize.py")));
});
