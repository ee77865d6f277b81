import assert from "node:assert/strict";
import { test } from "node:test";
import { type ForeignKey, readSetting, suggestKey, translateKeys, valueOf, withSettings } from "./keys.js";

const rules: ForeignKey[] = [
  { names: ["lr"], key: "optimizer.rate" },
  { names: ["fp16"], key: "precision", value: (given) => (given === true ? "half" : undefined), why: "storage" },
  { names: ["a.static"], key: null },
];

test("foreign keys are replaced in any section, with one line each; ours stay and win", () => {
  const given = { training: { lr: 0.1, epochs: 3 }, a: { static: true }, fp16: true };
  const { file, lines } = translateKeys(given, rules, (key) => key === "training.epochs");
  assert.deepEqual(file, { training: { epochs: 3 }, optimizer: { rate: 0.1 }, precision: "half" });
  assert.deepEqual(lines, [
    "training.lr: 0.1 -> optimizer.rate: 0.1",
    "a.static: true -> not needed",
    'fp16: true -> precision: "half" (storage)',
  ]);
  assert.deepEqual(given.training, { lr: 0.1, epochs: 3 });
  const both = { lr: 1, optimizer: { rate: 2 } };
  assert.deepEqual(translateKeys(both, rules, () => false).file, both);
  for (const odd of [null, 3, "x", [1]]) assert.deepEqual(translateKeys(odd, rules, () => false).file, odd);
});

test("an unknown key always gets a suggestion", () => {
  const known = ["optimizer.rate", "optimizer.type", "name"];
  assert.equal(suggestKey("training.lr", known, rules), "; it is called optimizer.rate");
  assert.equal(suggestKey("model.type", known), "; it is called optimizer.type");
  assert.equal(suggestKey("optimizer.rte", known), "; did you mean optimizer.rate?");
  assert.equal(suggestKey("optimizer.zzzzzz", known), "; known keys of optimizer: rate, type");
  assert.equal(suggestKey("optimzer", known), "; did you mean optimizer?");
  assert.equal(suggestKey("zzzzzzzz", known), "; known keys: optimizer, name");
  assert.match(suggestKey("__proto__", known, rules), /known keys/);
});

test("settings of the command line change a copy of the file", () => {
  const given = { a: { b: 1 }, list: [{ x: 1 }] };
  const entries = ["a.b=2.5e-3", "c.d=text = more", "e=[1,2]", "f=true", "list.0.x=7", "g=1-2"];
  assert.deepEqual(withSettings(given, entries).file, {
    a: { b: 0.0025 },
    c: { d: "text = more" },
    e: [1, 2],
    f: true,
    list: [{ x: 7 }],
    g: "1-2",
  });
  assert.deepEqual(given, { a: { b: 1 }, list: [{ x: 1 }] });
  assert.deepEqual(withSettings(given, ["a.b=null"]).file, { list: [{ x: 1 }] });
  assert.equal(withSettings(given, ["nothing"]).wrong, "nothing");
  for (const wrong of ["=1", "a b=1", "a..b=1", ""]) assert.equal(readSetting(wrong), null, wrong);
});

test("no key reaches the prototype of objects", () => {
  withSettings({}, ["__proto__.polluted=1", "constructor.prototype.polluted=1"]);
  assert.equal(({} as { polluted?: number }).polluted, undefined);
  assert.equal(valueOf({}, "constructor.name"), undefined);
});
