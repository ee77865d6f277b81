// Sharded checkpoints: written by any number of ranks and read by any other, bit for bit; killed writers, lost ranks and
// damaged files never cost the last good one.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { hash } from "node:crypto";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { openSafetensors, readSafetensors, writeSafetensors } from "@weft/core/io";
import { scratch } from "../data/testkit.js";
import { findCheckpoint, readShards, removeUnfinished, startShardedCheckpoint, writeCheckpoint } from "./checkpoint.js";
import { exportRun } from "./export.js";
import { progressOf, rankOf, saveAll, shapes, storedBy, valuesOf } from "./shards.testkit.js";

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
      "parts that overlap, and leave others out, with a checksum of their own",
      (at) => {
        const path = join(at, "index.json");
        const [before, index] = [readFileSync(path), JSON.parse(readFileSync(path, "utf8"))];
        type Tensors = Record<string, { parts: { start: number[]; stop: number[] }[] }>;
        const { parts } = Object.values(index.tensors as Tensors).find((tensor) => tensor.parts.length > 2)!;
        const sizes = parts.map(({ start, stop }) => stop.map((to, d) => to - start[d]).join());
        const twin = sizes.findIndex((size, i) => sizes.indexOf(size) < i);
        const { start, stop } = parts[sizes.indexOf(sizes[twin])];
        Object.assign(parts[twin], { start, stop });
        writeFileSync(path, JSON.stringify(index));
        const sum = (bytes: Buffer): string => hash("sha256", bytes, "hex");
        edit(join(at, "SHA256SUMS"), (text) => text.replace(sum(before), sum(readFileSync(path))));
      },
    ],
    [
      "the folder of another step",
      (at) => {
        rmSync(at, { recursive: true });
        cpSync(
          at.replace(/\d+$/, (n) => String(Number(n) - 1).padStart(8, "0")),
          at,
          { recursive: true },
        );
      },
    ],
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

/** The checksums that somebody writes who has changed files. */
function sum(at: string): void {
  const names = readdirSync(at).filter((name) => name !== "SHA256SUMS");
  writeFileSync(
    join(at, "SHA256SUMS"),
    names.map((name) => `${hash("sha256", readFileSync(join(at, name)), "hex")}  ${name}\n`).join(""),
  );
}

test("files that were exchanged between ranks, steps and runs are noticed, also with new checksums", async () => {
  const [run, other] = [join(folder, "swapped"), join(folder, "swapped-other")];
  const at = (step: number, of = run): string => join(of, "checkpoints", `step-${String(step).padStart(8, "0")}`);
  const [first, second] = [0, 1].map((rank) => `rank-0000${rank}-of-00002.safetensors`);
  const read = (): Promise<void> => checkOn(2, findCheckpoint(run)!.folder, 2);
  const fresh = async (): Promise<void> => {
    rmSync(run, { recursive: true, force: true });
    for (const step of [1, 2]) await Promise.all(saveAll(run, 2, step));
  };
  await fresh();
  await read();
  // Between ranks.
  renameSync(join(at(2), first), join(at(2), "x"));
  renameSync(join(at(2), second), join(at(2), first));
  renameSync(join(at(2), "x"), join(at(2), second));
  assert.equal(findCheckpoint(run)!.progress.step, 1);
  sum(at(2));
  await assert.rejects(read(), /rank-0000\d-of-00002.safetensors belongs to another checkpoint: its weft_part is rank/);
  // Between steps.
  await fresh();
  cpSync(join(at(1), first), join(at(2), first));
  sum(at(2));
  await assert.rejects(read(), /belongs to another checkpoint: its weft_step is 1, not 2/);
  // Between runs.
  await fresh();
  for (const rank of [0, 1])
    void startShardedCheckpoint(
      other,
      storedBy(rank, 2, 2),
      { ...progressOf(2), data: { train: "other data", test: null } },
      2,
      rankOf(rank, 2),
    );
  for (const begin = Date.now(); !existsSync(at(2, other)); await delay(10)) assert.ok(Date.now() - begin < 30_000);
  cpSync(join(at(2, other), second), join(at(2), second));
  sum(at(2));
  await assert.rejects(read(), /belongs to another checkpoint: its weft_run is/);
  // A whole folder under another name.
  await fresh();
  renameSync(at(2), at(3));
  const found = findCheckpoint(run);
  assert.deepEqual([found?.progress.step, found?.skipped.length], [1, 1]);
  assert.match(found!.skipped[0], /it is the checkpoint of step 2, renamed/);
  // Files of earlier versions have no marks.
  await fresh();
  for (const file of [first, second])
    await writeSafetensors(join(at(2), file), await readSafetensors(join(at(2), file)));
  sum(at(2));
  await read();
});

test("a checkpoint folder of somebody else is read in bounded time and memory, or passed over", {
  timeout: 60_000,
}, async () => {
  const run = join(folder, "hostile");
  const text = (at: string, change: (value: Record<string, unknown>) => unknown): void => {
    const path = join(at, "state.json");
    writeFileSync(path, JSON.stringify(change(JSON.parse(readFileSync(path, "utf8")))));
    sum(at);
  };
  const pipe = (path: string): void => {
    rmSync(path);
    execFileSync("mkfifo", [path]);
  };
  const attacks: [string, (at: string) => void, RegExp][] = [
    ["a pipe as a part", (at) => pipe(join(at, "rank-00000-of-00002.safetensors")), /not a plain file/],
    ["a pipe as progress", (at) => pipe(join(at, "state.json")), /not a plain file/],
    ["a pipe as checksums", (at) => pipe(join(at, "SHA256SUMS")), /not a plain file/],
    [
      "a device behind a link",
      (at) => {
        rmSync(join(at, "index.json"));
        symlinkSync("/dev/zero", join(at, "index.json"));
      },
      /not a plain file/,
    ],
    [
      "checksums of other files",
      (at) => appendFileSync(join(at, "SHA256SUMS"), `${"0".repeat(64)}  ../../x\n`),
      /is not in its folder/,
    ],
    ["no object", (at) => text(at, () => null), /version undefined/],
    ["no configuration", (at) => text(at, (v) => ({ ...v, config: null })), /state.json: config/],
    ["invalid epochs", (at) => text(at, (v) => ({ ...v, epochs: [1] })), /state.json: epochs.0/],
    ["a negative step", (at) => text(at, (v) => ({ ...v, step: -1 })), /state.json: step/],
    ["half a batch", (at) => text(at, (v) => ({ ...v, index: 0.5 })), /state.json: index/],
    ["speeds without end", (at) => text(at, (v) => ({ ...v, speeds: [0, "x"] })), /state.json: speeds/],
  ];
  for (const [what, attack, expected] of attacks) {
    rmSync(run, { recursive: true, force: true });
    for (const step of [1, 2]) await Promise.all(saveAll(run, 2, step));
    attack(join(run, "checkpoints", "step-00000002"));
    const found = findCheckpoint(run);
    assert.equal(found?.progress.step, 1, what);
    assert.match(found.skipped[0], expected, what);
  }
  // Losses that are no numbers are JSON's null.
  text(join(run, "checkpoints", "step-00000001"), (v) => ({
    ...v,
    epochs: [{ epoch: 1, trainLoss: null, seconds: 1, valLoss: null, valAccuracy: null }],
  }));
  assert.ok(Number.isNaN(findCheckpoint(run)!.progress.epochs[0].trainLoss));
});

test("on a full disk neither a checkpoint nor an export is left half written, and the one before is whole", async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root, to mount a small file system");
  const small = join(folder, "small");
  mkdirSync(small);
  const url = (name: string): string => JSON.stringify(new URL(name, import.meta.url).href);
  const script = `
    import { readdirSync, writeFileSync } from "node:fs";
    import { findCheckpoint } from ${url("./checkpoint.js")};
    import { exportRun } from ${url("./export.js")};
    import { saveAll } from ${url("./shards.testkit.js")};
    const weft = await import(${JSON.stringify(import.meta.resolve("@weft/core"))});
    weft.setDevice("reference");
    const run = ${JSON.stringify(small)} + "/run";
    await Promise.all(saveAll(run, 2, 1));
    try { writeFileSync(${JSON.stringify(small)} + "/other", Buffer.alloc(1 << 20)); } catch {}
    const said = await Promise.all([...saveAll(run, 2, 2), exportRun(run, ${JSON.stringify(small)} + "/out")].map((one) => one.then(() => "", (e) => e.message)));
    console.log(JSON.stringify({ said, step: findCheckpoint(run).progress.step, files: readdirSync(${JSON.stringify(small)}), left: readdirSync(run + "/checkpoints") }));
    process.exit(0);`;
  const line = ["-m", "sh", "-c", `mount -t tmpfs -o size=96k none ${small} && exec "$0" --input-type=module -e "$1"`];
  const done = spawnSync("unshare", [...line, process.execPath, script], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  const { said, step, files, left } = JSON.parse(done.stdout) as Record<string, unknown>;
  for (const text of said as string[]) assert.match(text, /no space left|removed|disk is full/i);
  assert.deepEqual([step, files, left], [1, ["other", "run"], ["step-00000001"]]);
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
