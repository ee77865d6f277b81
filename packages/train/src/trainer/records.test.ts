// Records of a run: their content, and their files on full disks and beside links that others placed.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseRecord } from "@weft/formats";
import { scratch } from "../data/testkit.js";
import { RecordWriter, writeMetrics } from "./records.js";
import { appendWhole, replaceFile } from "./run-files.js";

const folder = scratch();

test("a non-finite value is omitted from a record", () => {
  const writer = new RecordWriter([folder], 0, 0);
  writer.step({ step: 0, durationUs: 5, loss: Number.NaN, gradientNorm: Number.POSITIVE_INFINITY, samples: 8 }, 0);
  writer.write("epoch", { epoch: 1, seconds: 2, trainLoss: Number.NaN });
  writer.flush();
  const text = readFileSync(join(folder, "rank0.jsonl"), "utf8");
  assert.doesNotMatch(text, /null|loss|gradientNorm|trainLoss/i);
  for (const line of text.trimEnd().split("\n")) {
    const parsed = parseRecord(line);
    assert.ok(parsed.ok && parsed.dropped.length === 0, line);
  }
});

test("files of a run are written whole, beside links and pipes that others placed", () => {
  const run = join(folder, "links");
  mkdirSync(run);
  const victim = join(folder, "victim");
  writeFileSync(victim, "precious");
  for (const name of ["rank0.jsonl", "metrics.csv", "metrics.csv.tmp", "run.json.tmp"])
    symlinkSync(victim, join(run, name));
  const writer = new RecordWriter([run], 0, 0);
  writeMetrics(run, []);
  replaceFile(join(run, "run.json"), "{}");
  writer.write("end", { status: "ok", seconds: 1 });
  writer.flush();
  assert.equal(readFileSync(victim, "utf8"), "precious");
  assert.ok(lstatSync(join(run, "rank0.jsonl")).isFile() && lstatSync(join(run, "metrics.csv")).isFile());
  assert.deepEqual(readdirSync(run).sort(), ["metrics.csv", "rank0.jsonl", "run.json"]);
  symlinkSync(victim, join(run, "rank1.jsonl"));
  assert.throws(() => appendWhole(join(run, "rank1.jsonl"), "x"), /rank1.jsonl cannot be written: ELOOP.*remove it/);
});

test("on a full disk records and summaries stay as they were, and the error says what to do", (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root, to mount a small file system");
  const small = join(folder, "small");
  mkdirSync(small);
  const url = (name: string): string => JSON.stringify(new URL(name, import.meta.url).href);
  const program = `
    import { readFileSync, readdirSync, writeFileSync } from "node:fs";
    import { RecordWriter } from ${url("./records.js")};
    import { replaceFile } from ${url("./run-files.js")};
    const folder = ${JSON.stringify(small)};
    const writer = new RecordWriter([folder], 0, 0);
    const record = (step) => writer.step({ step, durationUs: 1, samples: 1 }, 0);
    replaceFile(folder + "/config.yaml", "before");
    for (let step = 0; step < 10; step++) record(step);
    writer.flush();
    const before = readFileSync(folder + "/rank0.jsonl", "utf8");
    // All but a part of a block: what is written next fits in part.
    try { writeFileSync(folder + "/other", Buffer.alloc(1 << 20)); } catch {}
    const problems = [];
    const attempt = (what) => { try { what(); problems.push("written"); } catch (error) { problems.push(error.message); } };
    attempt(() => { for (let step = 10; step < 200; step++) record(step); writer.flush(); });
    attempt(() => replaceFile(folder + "/config.yaml", "after".repeat(10_000)));
    // A resumed run keeps the records of earlier steps, or all of them.
    attempt(() => new RecordWriter([folder], 0, 5));
    const same = readFileSync(folder + "/rank0.jsonl", "utf8") === before;
    console.log(JSON.stringify({ problems, same, config: readFileSync(folder + "/config.yaml", "utf8"), files: readdirSync(folder).sort() }));`;
  const line = ["-m", "sh", "-c", `mount -t tmpfs -o size=64k none ${small} && exec "$0" --input-type=module -e "$1"`];
  const done = spawnSync("unshare", [...line, process.execPath, program], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  const { problems, same, config, files } = JSON.parse(done.stdout) as Record<string, unknown>;
  for (const problem of problems as string[])
    assert.match(problem, /cannot be written: ENOSPC.*make room on this disk, then continue with --resume/);
  assert.deepEqual([same, config, files], [true, "before", ["config.yaml", "other", "rank0.jsonl"]]);
});
