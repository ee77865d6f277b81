// Programs that an earlier process planned: loaded without planning, with the same results, kernels and memory; and whatever is
// wrong with what was kept, the program is planned again.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { unoptimizedCompiler } from "../../testing/fast-compiler.js";
import { findCompiler } from "./compiler.js";
import { engineIdentity } from "./saved-program.js";

const skip = findCompiler() === null ? "no C compiler on this machine" : false;
const dist = join(dirname(fileURLToPath(import.meta.url)), "../..");
const cache = mkdtempSync(join(tmpdir(), "weft-saved-"));
after(() => rmSync(cache, { recursive: true, force: true }));
const compiler = unoptimizedCompiler(cache);

/** A training step: many kernels, donated memory, linear algebra; and a small program that is not worth keeping. */
const body = `
import * as weft from ${JSON.stringify(`file://${dist}/index.js`)};
import * as nn from ${JSON.stringify(`file://${dist}/nn/index.js`)};
const device = weft.setDevice("cpu");
const sizes = [12, 16, 20, 8, 4];
const params = sizes.slice(1).map((out, i) => nn.linear.init({ in: sizes[i], out }, weft.key(i)));
const x = weft.randn([24, 12], { seed: 1 }).realize();
const eye = weft.eye(4).realize();
const forward = (p, h) => p.reduce((y, layer) => weft.softmax(nn.linear.apply(layer, y).tanh()), h);
const loss = (p, h) => {
  const y = forward(p, h);
  const gram = y.transpose().matmul(y).add(eye);
  return weft.cholesky(gram).sum().add(y.square().cumsum(0).mean());
};
const step = weft.jit((p, h) => {
  const [value, grads] = weft.valueAndGrad(loss)(p, h);
  return [weft.treeMap((a, b) => a.sub(b.mul(0.1)), p, grads), value];
}, { donate: [0] });
for (const layer of params) for (const t of Object.values(layer)) t.realize();
const before = { ...device.programs };
let [p, value] = step(params, x);
const first = { planned: device.programs.planned - before.planned, saved: device.programs.saved - before.saved };
const losses = [value.itemSync()];
for (let i = 0; i < 3; i++) { [p, value] = step(p, x); losses.push(value.itemSync()); }
console.log(JSON.stringify({ first, losses, kernels: step.kernels(p, x), memory: device.memory().peakBytes }));
`;
interface Outcome {
  first: { planned: number; saved: number };
  losses: number[];
  kernels: string[];
  memory: number;
}
function run(env: Record<string, string> = {}): Outcome {
  const done = spawnSync(process.execPath, ["--input-type=module", "-e", body], {
    encoding: "utf8",
    env: { ...process.env, WEFT_CACHE_DIR: cache, WEFT_CC: compiler, ...env },
  });
  assert.equal(done.status, 0, done.stderr);
  return JSON.parse(done.stdout) as Outcome;
}
const kept = (): string[] =>
  readdirSync(join(cache, "cpu"))
    .filter((name) => name.endsWith(".json"))
    .map((name) => join(cache, "cpu", name));

test("a second process loads saved programs and computes the same", { skip }, () => {
  const fresh = run();
  const { planned } = fresh.first;
  const [all, allButOne] = [
    { planned, saved: 0 },
    { planned: planned - 1, saved: 1 },
  ];
  assert.deepEqual(fresh.first, all);
  assert.ok(fresh.kernels.length >= 12, `${fresh.kernels.length} kernels`);
  const [file, ...others] = kept();
  assert.deepEqual(others, [], "small programs are not kept");
  const again = run();
  assert.deepEqual(again.first, allButOne);
  assert.deepEqual({ ...again, first: null }, { ...fresh, first: null });

  // Other settings of the compiler and debug output have their own programs, or none.
  assert.deepEqual(run({ WEFT_LANE_TILES: "1" }).first, all);
  assert.equal(kept().length, 2);
  const text = readFileSync(file, "utf8");
  const saved = JSON.parse(text);
  assert.ok(
    saved.kernels.some((k: { work?: unknown }) => k.work !== undefined),
    "what predictions are made of is kept",
  );

  // Damaged, of another shape, and without its code: planned again, and right again.
  const wrong = [
    text.slice(0, text.length / 2),
    "null",
    JSON.stringify({ ...saved, aliases: [[0, 99]] }),
    JSON.stringify({ ...saved, library: "../../elsewhere.so" }),
    JSON.stringify({ ...saved, library: `${"0".repeat(40)}.so` }),
  ];
  for (const content of wrong) {
    for (const path of kept()) writeFileSync(path, content);
    const { first, losses } = run();
    assert.deepEqual([first, losses], [all, fresh.losses], content.slice(0, 60));
  }
  assert.deepEqual(run().first, allButOne);
  const library = join(cache, "cpu", JSON.parse(readFileSync(file, "utf8")).library);
  assert.ok(existsSync(library));
  writeFileSync(library, "not a library");
  assert.deepEqual(run().losses, fresh.losses);
});

test("the identity of a build depends on its files", () => {
  const root = join(cache, "engine");
  for (const folder of [
    "graph",
    "ops",
    "transform",
    "cost",
    "shard",
    "compile",
    "device",
    "device/cpu",
    "device/cpu/native",
    "device/native",
  ])
    mkdirSync(join(root, folder), { recursive: true });
  const file = join(root, "compile/fuse.js");
  writeFileSync(file, "1");
  const first = engineIdentity(root);
  assert.equal(engineIdentity(root), first);
  utimesSync(file, 1, 1);
  const touched = engineIdentity(root);
  writeFileSync(join(root, "ops/new.js"), "");
  const added = engineIdentity(root);
  writeFileSync(join(root, "device/native/new.h"), "");
  assert.equal(new Set([first, touched, added, engineIdentity(root)]).size, 4);
});
