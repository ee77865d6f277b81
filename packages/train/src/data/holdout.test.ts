// Rows held out for validation: a fixed, seeded, disjoint part of the training rows, read from the data itself.
import assert from "node:assert/strict";
import { statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { findSplit } from "./datasets.js";
import { holdOut } from "./holdout.js";
import { scratch } from "./testkit.js";
import { hashTokenizer } from "./tokenizer.js";
import { limitRows, openTokens, type TokenSet } from "./tokens.js";

scratch();
const open = async (): Promise<TokenSet> => openTokens(findSplit("synthetic", "train"), hashTokenizer(5000));
/** Every row as its class and tokens. */
const rowsOf = (set: TokenSet): string[] =>
  Array.from({ length: set.rows }, (_, row) =>
    [set.labels[row], ...set.ids.subarray(set.offsets[row], set.offsets[row + 1])].join(" "),
  );

test("both parts together are all rows, once each and in order; the seed decides which", async () => {
  const set = limitRows(await open(), 503);
  const { train, held } = holdOut(set, 0.1, 42);
  assert.deepEqual([train.rows, held.rows], [453, 50]);
  const whole = rowsOf(set);
  assert.deepEqual([...rowsOf(train), ...rowsOf(held)].sort(), [...whole].sort());
  for (const part of [train, held]) {
    let from = -1;
    for (const row of rowsOf(part)) {
      from = whole.indexOf(row, from + 1);
      assert.ok(from >= 0, "out of order");
    }
  }
  assert.notEqual(train.key, held.key);
  const again = holdOut(set, 0.1, 42);
  assert.deepEqual(rowsOf(again.held), rowsOf(held));
  const other = holdOut(set, 0.1, 43);
  assert.notDeepEqual(rowsOf(other.held), rowsOf(held));
  assert.notEqual(other.held.key, held.key);
  // Held-out rows are spread over the file.
  const places = rowsOf(held).map((row) => whole.indexOf(row));
  assert.ok(places.some((at) => at < 100) && places.some((at) => at > 400), places.join(" "));
});

test("held-out files are made once and rebuilt if damaged; a share that leaves no rows is rejected", async () => {
  const set = limitRows(await open(), 100);
  const { held } = holdOut(set, 0.2, 1);
  const { mtimeMs } = statSync(held.file);
  assert.equal(statSync(holdOut(set, 0.2, 1).held.file).mtimeMs, mtimeMs);
  const rows = rowsOf(held);
  writeFileSync(held.file, "cut");
  assert.deepEqual(rowsOf(holdOut(set, 0.2, 1).held), rows);
  assert.throws(() => holdOut(limitRows(set, 1), 0.5, 1), /data\.validation 0\.5 of 1 rows leaves none/);
});
