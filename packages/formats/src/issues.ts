// Turns zod's issues into the messages of Weft: the key, what was found and what to write instead.
import type { z } from "zod";
import { unknownFields } from "./check.js";
import { closestName } from "./text.js";

/** The value at the path of an issue. */
function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | null | undefined)?.[key], value);
}

/** `runs[1].devices must be a positive integer, is "4"`: the first issue of a failed parse as a sentence. */
export function describeIssue(error: z.ZodError, value: unknown): string {
  const [issue] = error.issues;
  const path = issue.path.reduce<string>(
    (text, key) => (typeof key === "number" ? `${text}[${key}]` : text === "" ? String(key) : `${text}.${String(key)}`),
    "",
  );
  const got = JSON.stringify(valueAt(value, issue.path)) ?? "missing";
  return `${path === "" ? "the file" : path} ${issue.message}, is ${got.length > 80 ? `${got.slice(0, 77)}...` : got}`;
}

/** One sentence per key of an object that its schema does not have, with the key that was probably meant. */
export function describeUnknownKeys(schema: z.ZodObject, value: object): { key: string; message: string }[] {
  const known = Object.keys(schema.shape);
  return unknownFields(schema, value)
    .filter((path) => Object.hasOwn(value, path))
    .map((key) => {
      const near = closestName(key, known);
      return {
        key,
        message: `${key} is not a key here; ${near === null ? `known keys: ${known.join(", ")}` : `did you mean ${near}?`}`,
      };
    });
}
