// The file of measured rates: found again by the same machine, and by nobody else; whatever is wrong with it, it counts
// as absent. No device and no clock: rates are given.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { h200, type Rates } from "../cost/index.js";
import { ReferenceDevice } from "../device/index.js";
import { Effort } from "./effort.js";
import { knownRates, savedRates, saveRates } from "./rates-file.js";

const root = mkdtempSync(join(tmpdir(), "weft-rates-"));
const before = process.env.WEFT_CACHE_DIR;
process.env.WEFT_CACHE_DIR = root;
after(() => {
  if (before === undefined) delete process.env.WEFT_CACHE_DIR;
  else process.env.WEFT_CACHE_DIR = before;
  rmSync(root, { recursive: true });
});

const device = new ReferenceDevice();
const rates: Rates = { ...h200, name: "given", assumed: false };
const folder = join(root, "rates");
const only = (): string => join(folder, readdirSync(folder)[0]);

test("rates are stored by device and by number of neighbors", () => {
  assert.equal(knownRates(device), null);
  assert.ok(saveRates(device, rates));
  assert.deepEqual(knownRates(device), JSON.parse(JSON.stringify(rates)));
  assert.equal(knownRates(device, 8), null);
  const crowded = { ...rates, crowded: { members: 8, rates: { ...rates, simple: 5, links: undefined } } } as Rates;
  assert.ok(saveRates(device, crowded, 8));
  assert.equal(knownRates(device, 8)?.crowded?.rates.simple, 5);
  assert.equal(knownRates(device)?.crowded, undefined);
  assert.deepEqual(
    savedRates().map(({ key }) => [key.device, key.neighbors]),
    [
      ["reference", 1],
      ["reference", 8],
    ],
  );
  assert.deepEqual(
    readdirSync(folder).filter((name) => !name.endsWith(".json")),
    [],
  );
  rmSync(folder, { recursive: true });
});

test("a file that is damaged, hostile, of another version or machine is measured again", () => {
  saveRates(device, rates);
  const file = only();
  const good = readFileSync(file, "utf8");
  const parsed = JSON.parse(good);
  const with_ = (part: object): string => JSON.stringify({ ...parsed, ...part });
  const bad: Record<string, string> = {
    empty: "",
    "half-written": good.slice(0, good.length / 2),
    "not an object": "[]",
    null: "null",
    "another version": with_({ version: parsed.version + 1 }),
    "another processor": with_({ key: { ...parsed.key, processor: "another" } }),
    "no key": with_({ key: undefined }),
    "no date": with_({ measured: 3 }),
    "from tomorrow": with_({ measured: new Date(Date.now() + 1e9).toISOString() }),
    "a negative rate": with_({ rates: { ...parsed.rates, simple: -1 } }),
    "a rate that is no number": with_({ rates: { ...parsed.rates, bandwidth: [["__proto__", {}]] } }),
    "links of nobody": with_({ rates: { ...parsed.rates, links: {} } }),
    "a crowd without rates": with_({ rates: { ...parsed.rates, crowded: { members: 8 } } }),
    "too large": `${good}${" ".repeat(2 ** 20)}`,
  };
  for (const [what, text] of Object.entries(bad)) {
    writeFileSync(file, text);
    assert.equal(knownRates(device), null, what);
    assert.deepEqual(savedRates(), [], what);
  }
  assert.ok(saveRates(device, rates));
  assert.notEqual(knownRates(device), null);
});

test("rates that were measured on a busy machine expire after some minutes", () => {
  assert.ok(saveRates(device, { ...rates, disturbed: true }));
  assert.equal(knownRates(device)?.disturbed, true);
  const file = only();
  const parsed = JSON.parse(readFileSync(file, "utf8"));
  const old = new Date(Date.now() - 11 * 60e3).toISOString();
  writeFileSync(file, JSON.stringify({ ...parsed, measured: old }));
  assert.equal(knownRates(device), null);
  writeFileSync(file, JSON.stringify({ ...parsed, measured: old, rates }));
  assert.notEqual(knownRates(device), null);
});

test("rates are saved in a private folder where the cache folder cannot be written", () => {
  writeFileSync(join(root, "file"), "");
  process.env.WEFT_CACHE_DIR = join(root, "file", "folder");
  try {
    assert.equal(saveRates(device, rates), true);
    assert.notEqual(knownRates(device), null);
    assert.equal(savedRates().length, 1);
  } finally {
    process.env.WEFT_CACHE_DIR = root;
  }
});

test("waiting is not computing", () => {
  const effort = new Effort();
  effort.during(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50));
  assert.equal(effort.isDisturbed, true);
});
