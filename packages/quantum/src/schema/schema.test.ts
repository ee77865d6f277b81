// Schemas: places, suggestions and values in messages, for every building block.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { z } from "zod";
import {
  choiceOf,
  listOf,
  number,
  parseSpecYaml,
  readValue,
  recordOf,
  SpecError,
  selectSchema,
  strict,
  variants,
  wholeNumber,
} from "./index.js";

const schema = strict({
  a: number.optional(),
  items: listOf(strict({ kind: choiceOf(["first", "second"]), size: wholeNumber(1).optional() })).optional(),
  byName: recordOf(selectSchema((raw) => (Array.isArray(raw) ? listOf(number) : number))).optional(),
  variant: variants<z.ZodType>("type", { x: strict({ type: choiceOf(["x"]), length: number }) }).optional(),
});
const read = (text: string): unknown => readValue(schema, parseSpecYaml(text, "file.yaml"), "file.yaml");

test("values are read; angles may be expressions", () => {
  assert.deepEqual(read("{a: -2*pi, byName: {u: 1, v: [1, pi/2]}}"), {
    a: -2 * Math.PI,
    byName: { u: 1, v: [1, Math.PI / 2] },
  });
  assert.deepEqual(read(""), {});
});

const wrong: [string, string | RegExp][] = [
  ["item: []", 'file.yaml: there is no key "item"; did you mean "items"? (known: a, items, byName, variant)'],
  [
    "items: [{kind: frist}]",
    'file.yaml: items[0].kind: there is no "frist"; did you mean "first"? (known: first, second)',
  ],
  ["items: [{kind: first, sise: 2}]", /^file.yaml: items\[0\]: there is no key "sise"; did you mean "size"/],
  // A misspelled key explains why the right one is missing.
  ["variant: {type: x, lenght: 2}", /^file.yaml: variant: there is no key "lenght"; did you mean "length"/],
  ["variant: {type: x}", 'file.yaml: variant: the key "length" is missing'],
  ["variant: {type: y}", 'file.yaml: variant.type: there is no "y" (known: x)'],
  ["variant: {}", 'file.yaml: variant: the key "type" is missing'],
  ["variant: 3", "file.yaml: variant: expected keys and values, got 3"],
  ["items: [{kind: first, size: 1.5}]", "file.yaml: items[0].size: expected a whole number >= 1, got 1.5"],
  ["items: {}", "file.yaml: items: expected a list, got {}"],
  ["byName: {u: [1, x]}", 'file.yaml: byName.u[1]: expected a number (or pi, 2*pi, pi/2), got "x"'],
  ["a: .nan", /a: expected a number .*, got NaN$/],
  ["a: pi/0", /a: expected a number/],
  ["[1]", "file.yaml: expected keys and values, got [1]"],
  ["a: [", /^file.yaml: is not YAML: /],
  ["a: &x [*x]", "file.yaml: an alias refers to a value that contains it"],
  ["byName: {__proto__: 1}", 'file.yaml: contains the name "__proto__", which no key can have'],
  [`a: ${"[".repeat(1000)}`, "file.yaml: has more than 100 brackets inside each other"],
];
for (const [text, message] of wrong)
  test(`refused: ${text.slice(0, 60)}`, () => {
    const isExpected = (error: unknown): boolean =>
      error instanceof SpecError &&
      (typeof message === "string" ? error.message === message : message.test(error.message));
    assert.throws(() => read(text), isExpected);
  });

test("a file that is too long is refused before it is read", () => {
  assert.throws(() => read(`byName: {u: [${"0.1,".repeat(3e5)}]}`), /has 12000\d\d characters, more than 1048576/);
});

test("a very long key is refused in bounded time and with a short message", () => {
  const key = "k".repeat(1e6);
  assert.throws(
    () => readValue(schema, { [key]: 1 }, "file.yaml"),
    (error: Error) => error instanceof SpecError && error.message.length < 300,
  );
});
