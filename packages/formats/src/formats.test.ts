// The schemas: published JSON Schema files, lenient reading, old spellings, study.yaml messages and suggestions.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  describeIssue,
  describeUnknownKeys,
  formatMetrics,
  instructionSchema,
  jsonSchemas,
  lenientParser,
  metricsColumn,
  parseRecord,
  recordSchema,
  recordSchemas,
  runFileSchema,
  unknownFields,
  yamlRunSchema,
  yamlStudySchema,
} from "./internal.js";
import { closestName, formatBytes, formatMicroseconds } from "./text.js";

test("the published JSON Schema files are those of the zod schemas", () => {
  const folder = fileURLToPath(new URL("../schemas/", import.meta.url));
  const expected = jsonSchemas();
  assert.deepEqual(
    readdirSync(folder).sort(),
    Object.keys(expected)
      .map((name) => `${name}.json`)
      .sort(),
  );
  for (const [name, text] of Object.entries(expected))
    assert.deepEqual(
      JSON.parse(readFileSync(`${folder}${name}.json`, "utf8")),
      JSON.parse(text),
      `${name}.json is out of date: node packages/formats/scripts/write-schemas.mjs`,
    );
});

test("the JSON Schema of records names every type and requires what readers require", () => {
  const schema = JSON.parse(jsonSchemas().record) as {
    oneOf: { properties: { type: { const: string } }; required: string[] }[];
  };
  assert.deepEqual(
    schema.oneOf.map((s) => s.properties.type.const),
    Object.keys(recordSchemas),
  );
  const step = schema.oneOf.find((s) => s.properties.type.const === "step");
  assert.deepEqual(step?.required, ["v", "type", "rank", "step", "durationUs"]);
});

test("an optional field of the wrong kind is dropped and named; required ones refuse the record", () => {
  const parsed = parseRecord(
    '{"v":1,"type":"step","rank":0,"step":1,"durationUs":5,"dataWaitUs":-1,"loss":"x","epoch":1.5,"own":7}',
  );
  assert.ok(parsed.ok);
  assert.deepEqual(parsed.dropped, ["epoch", "dataWaitUs", "loss"]);
  assert.deepEqual(parsed.record, { v: 1, type: "step", rank: 0, step: 1, durationUs: 5, own: 7 });
  const facts = parseRecord(
    '{"v":1,"type":"facts","facts":{"worldSize":"4","backend":null,"device":"cpu","configs":[{"file":1}]}}',
  );
  assert.ok(facts.ok);
  assert.deepEqual(facts.dropped, ["facts.worldSize", "facts.configs"]);
  assert.deepEqual(facts.record, { v: 1, type: "facts", facts: { device: "cpu" } });
});

test("British spellings of earlier versions are still read", () => {
  const sample = parseRecord('{"v":1,"type":"sample","t":1,"devices":[{"index":0,"utilisationPercent":97}]}');
  assert.ok(sample.ok && sample.record.type === "sample");
  assert.deepEqual(sample.record.devices, [{ index: 0, utilizationPercent: 97 }]);
  const end = parseRecord('{"v":1,"type":"end","status":"cancelled"}');
  assert.ok(end.ok && end.record.type === "end");
  assert.equal(end.record.status, "canceled");
  const run = lenientParser(runFileSchema.partial())({ v: 1, id: "a", status: "cancelled" });
  assert.ok(run.ok);
  assert.equal(run.value.status, "canceled");
});

test("the lenient parser and zod accept the same valid records", () => {
  const valid: object[] = [
    { v: 1, type: "run", id: "a", devices: 2, machine: { devices: [{ index: 0, name: "H200", link: "nvlink" }] } },
    { v: 1, type: "rank", rank: 1, localRank: 1, worldSize: 2, host: "h", pid: 4, device: "cpu" },
    { v: 1, type: "step", rank: 0, step: 0, durationUs: 1.5, compile: true, skipped: false },
    { v: 1, type: "epoch", epoch: 1, seconds: 2, lastStep: 40 },
    { v: 1, type: "event", name: "x", level: "info", data: { any: [1, "two", null] } },
    { v: 1, type: "end", status: "ok", figures: { throughput: 812.4 } },
  ];
  for (const record of valid) {
    assert.ok(recordSchema.safeParse(record).success, JSON.stringify(record));
    const parsed = parseRecord(JSON.stringify(record));
    assert.ok(parsed.ok && parsed.dropped.length === 0, JSON.stringify(parsed));
    assert.deepEqual(unknownFields(recordSchemas[parsed.record.type], record), []);
  }
  assert.deepEqual(unknownFields(recordSchemas.facts, { facts: { cores: 1, colour: 2 }, extra: 1 }), [
    "facts.colour",
    "extra",
  ]);
});

test("metrics.csv has one header, and missing values become empty cells", () => {
  assert.equal(
    formatMetrics([{ epoch: 1, trainLoss: 0.5, seconds: 2, valLoss: null, valAccuracy: null }]),
    "epoch,train_loss,train_time,val_loss,val_acc\n1,0.5,2,,\n",
  );
  assert.deepEqual(["train_time", " Epoch_Time ", "accuracy", "other"].map(metricsColumn), [
    "seconds",
    "seconds",
    "valAccuracy",
    undefined,
  ]);
});

test("problems of study.yaml name the key, what was found and what was probably meant", () => {
  const problem = (value: unknown): string => {
    const parsed = yamlStudySchema.safeParse(value);
    return parsed.success ? "" : describeIssue(parsed.error, value);
  };
  assert.equal(problem({ runs: [{ dir: "a", devices: "4" }] }), 'runs[0].devices must be a positive integer, is "4"');
  assert.equal(problem({ samples: -1 }), "samples must be a count, is -1");
  assert.equal(problem({ scaling: "sideways" }), 'scaling must be strong or weak, is "sideways"');
  assert.equal(problem({ runs: 3 }), "runs must be a list of {dir, devices}, is 3");
  assert.equal(problem(7), "the file must be a mapping {name, runs}, is 7");
  assert.deepEqual(
    describeUnknownKeys(yamlRunSchema, { dir: "a", devices: 1, batch_per_gpu: 32, "0": 1 }).map((p) => p.message),
    [
      `0 is not a key here; known keys: ${Object.keys(yamlRunSchema.shape).join(", ")}`,
      "batch_per_gpu is not a key here; did you mean batch_per_rank?",
    ],
  );
});

test("suggestions: same letters, small edits and prefixes, and no suggestion for a different word", () => {
  const known = ["batch_per_rank", "learning_rate", "device"];
  assert.equal(closestName("batchPerRank", known), "batch_per_rank");
  assert.equal(closestName("lerning_rate", known), "learning_rate");
  assert.equal(closestName("dev", known), "device");
  assert.equal(closestName("zebra", known), null);
  assert.equal(closestName("x".repeat(1e6), known), null);
});

test("an instruction needs every field in a tape, and only its times in the lab", () => {
  assert.equal(instructionSchema.safeParse({ type: "instruction", worker: 0, startUs: 0, endUs: 1 }).success, false);
});

test("times and sizes have a fitting unit", () => {
  assert.deepEqual([643612, 0, null, 7.2e9].map(formatMicroseconds), ["643.6 ms", "0", "-", "2 h"]);
  assert.deepEqual([9449488, 12, undefined].map(formatBytes), ["9.449 MB", "12 B", "-"]);
});
