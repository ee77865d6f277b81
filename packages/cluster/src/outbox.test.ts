import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { Outbox } from "./outbox.js";
import { decode, decodeAll } from "./protocol.js";

const schema = z.object({ n: z.number() });
const numbers = (written: Buffer[]): number[] => written.flatMap((bytes) => decodeAll(schema, bytes).map(({ n }) => n));

test("messages of one turn are sent as one batch in order, a single one unbatched", async () => {
  const written: Buffer[] = [];
  const box = new Outbox((bytes) => written.push(bytes));
  for (let n = 0; n < 5; n++) box.post(JSON.stringify({ n }));
  assert.equal(written.length, 0);
  await Promise.resolve();
  assert.equal(written.length, 1);
  box.post('{"n":5}');
  await Promise.resolve();
  assert.deepEqual([written.length, decode(schema, written[1])], [2, { n: 5 }]);
  assert.deepEqual(numbers(written), [0, 1, 2, 3, 4, 5]);
});

test("a long turn is sent in several batches, and flush sends the rest", async () => {
  const written: Buffer[] = [];
  const box = new Outbox((bytes) => written.push(bytes));
  for (let n = 0; n < 1000; n++) box.post(JSON.stringify({ n }));
  assert.equal(written.length, 3);
  box.flush();
  assert.equal(written.length, 4);
  assert.deepEqual(
    numbers(written),
    Array.from({ length: 1000 }, (_, i) => i),
  );
  box.post(JSON.stringify({ n: 1, text: "x".repeat(300_000) }));
  assert.equal(written.length, 5, "a large message is sent at once");
  await Promise.resolve();
  assert.equal(written.length, 5);
});

test("every message of a batch is validated", () => {
  assert.throws(() => decodeAll(schema, Buffer.from('[{"n":1},{"n":"x"}]')), /is wrong/);
  assert.throws(() => decodeAll(schema, Buffer.from('[{"n":1},[{"n":2}]]')), /is wrong/);
  assert.throws(() => decodeAll(schema, Buffer.from("[{")), /not of Weft's protocol/);
  assert.deepEqual(decodeAll(schema, Buffer.from("[]")), []);
});
