import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseRecord } from "@weft/formats";
import { scratch } from "../data/testkit.js";
import { RecordWriter } from "./records.js";

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
