// Sharded checkpoints: written by any number of ranks and read by any other, bit for bit; killed writers, lost ranks and
// damaged files never cost the last good one.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { openSafetensors, readSafetensors } from "@weft/core/io";
import { scratch } from "../data/testkit.js";
import { findCheckpoint, readShards, removeUnfinished, writeCheckpoint } from "./checkpoint.js";
import { exportRun } from "./export.js";
import { progressOf, saveAll, shapes, storedBy, valuesOf } from "./shards.testkit.js";

weft.setDevice("reference");
const folder = scratch();
const program = fileURLToPath(new URL("./shards.testkit.js", import.meta.url));
const names = Object.keys(shapes) as (keyof typeof shapes)[];

/** Checks every part that every rank reads against the values of a step. */
async function checkOn(ranks: number, at: string, step: number, model = 1): Promise<void> {
  for (let rank = 0; rank < ranks; rank++) {
    const expected = storedBy(rank, ranks, step, model);
    for (const section of ["model", "optimizer"] as const) {
      const own = expected.filter((given) => given.section === section);
      const like = Object.fromEntries(own.map(({ name, local }) => [name, local]));
      const read = await readShards(at, section, like, expected, rank);
      for (const { name, local } of own)
        assert.deepEqual(
          Array.from(read[name].dataSync() as Float32Array),
          Array.from(local.dataSync() as Float32Array),
        );
    }
  }
}

test("a checkpoint of 8 ranks is read by 3, theirs by 5, and that by 2 x 2 and one, bit for bit", async () => {
  const run = join(folder, "counts");
  let step = 0;
  for (const [ranks, model] of [
    [8, 1],
    [3, 1],
    [5, 1],
    [4, 2],
    [1, 1],
  ]) {
    await Promise.all(saveAll(run, ranks, ++step, [], model));
    const found = findCheckpoint(run);
    assert.equal(found?.progress.step, step);
    assert.equal(readdirSync(found.folder).filter((name) => name.startsWith("rank-")).length, ranks);
    for (const [others, parts] of [
      [3, 1],
      [5, 1],
      [8, 1],
      [4, 2],
      [1, 1],
    ])
      await checkOn(others, found.folder, step, parts);
  }
  assert.deepEqual(readdirSync(join(run, "checkpoints")).sort(), ["step-00000004", "step-00000005"], "two are kept");
});

test("no rank writes what another one holds: every element is in the files once", async () => {
  const run = join(folder, "once");
  await Promise.all(saveAll(run, 3, 1));
  const at = findCheckpoint(run)!.folder;
  let elements = 0;
  for (const name of readdirSync(at).filter((file) => file.startsWith("rank-"))) {
    const file = await openSafetensors(join(at, name));
    for (const own of file.names) elements += file.info(own).shape.reduce((n, d) => n * d, 1);
    await file.close();
  }
  const whole = names.reduce((n, name) => n + shapes[name].reduce((m, d) => m * d, 1), 0);
  assert.equal(elements, 2 * whole);
});

test("a checkpoint of the earlier format is read by any number of ranks", async () => {
  const run = join(folder, "old");
  const tree = Object.fromEntries(names.map((name) => [name, weft.tensor(valuesOf(name, 3), { shape: shapes[name] })]));
  const at = await writeCheckpoint(run, { params: tree, optimizer: tree }, progressOf(3), 2);
  assert.deepEqual(readdirSync(at).sort(), ["SHA256SUMS", "model.safetensors", "optimizer.safetensors", "state.json"]);
  for (const ranks of [1, 3, 5]) await checkOn(ranks, at, 3);
});

test("a rank that is lost during a save leaves the checkpoint before it", async () => {
  const run = join(folder, "lost");
  await Promise.all(saveAll(run, 3, 1));
  void saveAll(run, 3, 2, [1])[0].catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(findCheckpoint(run)?.progress.step, 1);
  assert.ok(existsSync(join(run, "checkpoints", ".step-00000002.sharded.tmp")));
  removeUnfinished(run);
  assert.deepEqual(readdirSync(join(run, "checkpoints")), ["step-00000001"]);
});

test("writers killed at any moment leave the last complete checkpoint readable", async () => {
  const run = join(folder, "killed");
  for (let round = 0; round < 6; round++) {
    const child = spawn(process.execPath, [program, run, "3"], { stdio: ["ignore", "pipe", "inherit"] });
    let written = 0;
    child.stdout.on("data", (chunk: Buffer) => {
      written = Number(chunk.toString("utf8").trim().split("\n").at(-1));
    });
    const ended = new Promise((resolve) => child.on("exit", resolve));
    // The first round waits for a checkpoint; the others end at points spread over the writing of one.
    const begin = Date.now();
    while (written === 0 && Date.now() - begin < 20_000) await new Promise((resolve) => setTimeout(resolve, 5));
    await new Promise((resolve) => setTimeout(resolve, 3 + 7 * round));
    child.kill("SIGKILL");
    await ended;
    const found = findCheckpoint(run);
    assert.ok(found !== null && found.skipped.length === 0, JSON.stringify(found?.skipped));
    assert.ok(found.progress.step >= written, `${found.progress.step}, reported ${written}`);
    await checkOn(2, found.folder, found.progress.step);
    removeUnfinished(run);
  }
});

test("damaged parts, and an index that lies, are passed over in favor of the checkpoint before", async () => {
  const run = join(folder, "damaged");
  const damages: [string, (at: string) => void][] = [
    ["a flipped byte", (at) => flip(join(at, "rank-00001-of-00003.safetensors"))],
    ["a cut file", (at) => writeFileSync(join(at, "rank-00000-of-00003.safetensors"), "short")],
    ["a lying index", (at) => edit(join(at, "index.json"), (text) => text.replace("[7,5]", "[8,5]"))],
    ["no JSON", (at) => writeFileSync(join(at, "index.json"), "{")],
    [
      "an index of other files",
      (at) => edit(join(at, "index.json"), (text) => text.replace(/rank-00000/g, "../rank-0")),
    ],
  ];
  let step = 0;
  for (const [what, damage] of damages) {
    await Promise.all(saveAll(run, 3, ++step));
    await Promise.all(saveAll(run, 3, ++step));
    damage(join(run, "checkpoints", `step-${String(step).padStart(8, "0")}`));
    const found = findCheckpoint(run);
    assert.equal(found?.progress.step, step - 1, what);
    assert.equal(found.skipped.length, 1, what);
    step++;
  }
  function flip(path: string): void {
    const bytes = readFileSync(path);
    bytes[bytes.length - 3] ^= 1;
    writeFileSync(path, bytes);
  }
  function edit(path: string, change: (text: string) => string): void {
    writeFileSync(path, change(readFileSync(path, "utf8")));
  }
});

test("a run is exported as one folder, or in several files with an index", async () => {
  const run = join(folder, "export");
  await Promise.all(saveAll(run, 3, 2));
  const { files } = await exportRun(run, join(folder, "whole"));
  assert.deepEqual(files, ["model.safetensors"]);
  const read = await readSafetensors(join(folder, "whole", "model.safetensors"));
  for (const name of names) {
    assert.deepEqual([...read[name].shape], shapes[name]);
    assert.deepEqual(Array.from(read[name].data as Float32Array), Array.from(valuesOf(name, 2)));
  }
  const parts = await exportRun(run, join(folder, "parts"), 200);
  assert.ok(parts.files.length > 1);
  const index = JSON.parse(readFileSync(join(folder, "parts", "model.safetensors.index.json"), "utf8"));
  assert.deepEqual(Object.keys(index.weight_map).sort(), [...names].sort());
  await assert.rejects(exportRun(run, join(folder, "parts")), /is not empty/);
  await assert.rejects(exportRun(join(folder, "nowhere"), join(folder, "x")), /holds no checkpoint/);
});
