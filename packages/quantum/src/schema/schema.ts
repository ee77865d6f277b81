// Schemas of YAML files, built on zod. An error names the file, the place and the value, and suggests the nearest known key.
import { WeftError } from "@weft/core/internal/graph";
import { parseYaml as parse } from "@weft/formats/yaml";
import { z } from "zod";
import { unknownName } from "./suggestion.js";

/** Error in a specification or settings file; the message names the place and what was expected there. */
export class SpecError extends WeftError {}

const show = (value: unknown): string => {
  const text = typeof value === "number" ? String(value) : (JSON.stringify(value) ?? String(value));
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
};

/** Message of an issue whose value is absent; `readValue` turns it into a sentence about the parent's key. */
const missing = "is missing";
const expected = (what: string, value: unknown): string =>
  value === undefined ? missing : `expected ${what}, got ${show(value)}`;

/** What editors should know of a schema that a function reads: its JSON Schema, or the schemas among which it chooses. */
interface JsonForm {
  json?: object;
  oneOf?: readonly z.ZodType[];
  /** The key that tells the alternatives apart, and its value in each. */
  tag?: { key: string; values: readonly string[] };
}
const jsonForms = new WeakMap<object, JsonForm>();
const described = <T extends object>(schema: T, form: JsonForm): T => {
  jsonForms.set(schema, form);
  return schema;
};

/** The JSON Schema of what a file may contain, for editors. */
export function jsonSchemaOf(schema: z.ZodType): Record<string, unknown> {
  return z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
    override: ({ zodSchema, jsonSchema }) => {
      const form = jsonForms.get(zodSchema);
      if (form?.json !== undefined) Object.assign(jsonSchema, form.json);
      if (form?.oneOf === undefined) return;
      const parts = form.oneOf.map((part, i) => {
        const { $schema: _, ...json } = jsonSchemaOf(part);
        if (form.tag === undefined) return json;
        const properties = json.properties as Record<string, unknown> | undefined;
        return { ...json, properties: { ...properties, [form.tag.key]: { const: form.tag.values[i] } } };
      });
      Object.assign(jsonSchema, { anyOf: parts });
    },
  }) as Record<string, unknown>;
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** An object with exactly these keys. */
export const strict = <S extends Readonly<Record<string, z.ZodType>>>(shape: S) =>
  z.strictObject(shape, {
    error: (issue) =>
      issue.code === "unrecognized_keys"
        ? unknownName("key ", issue.keys[0], Object.keys(shape))
        : expected("keys and values", issue.input),
  });

/** An object whose keys are names that the file chooses. */
export const recordOf = <T extends z.ZodType>(value: T) =>
  z.record(z.string(), value, { error: (issue) => expected("keys and values", issue.input) });

export const listOf = <T extends z.ZodType>(item: T) =>
  z.array(item, { error: (issue) => expected("a list", issue.input) });

export const flag = z.boolean({ error: (issue) => expected("true or false", issue.input) });
export const text = z.string({ error: (issue) => expected("text", issue.input) });

/** One of a list of names. */
export const choiceOf = <const T extends string>(known: readonly T[]) =>
  z.enum(known as readonly [T, ...T[]], {
    error: ({ input }) => (typeof input === "string" ? unknownName("", input, known) : expected("text", input)),
  });

/** A finite number, or one of the expressions that angles are written with: pi, pi/2, 2*pi, -0.5*pi. */
export const number = described(
  z.unknown().transform((value, context): number => {
    if (typeof value === "number" && Number.isFinite(value)) return value;
    const match =
      typeof value === "string" ? /^\s*(-?)(?:([\d.]+)\s*\*\s*)?pi(?:\s*\/\s*([\d.]+))?\s*$/.exec(value) : null;
    if (match !== null) {
      const angle = ((match[1] === "-" ? -1 : 1) * Number(match[2] ?? 1) * Math.PI) / Number(match[3] ?? 1);
      if (Number.isFinite(angle)) return angle;
    }
    context.addIssue({ code: "custom", message: expected("a number (or pi, 2*pi, pi/2)", value) });
    return z.NEVER;
  }),
  { json: { anyOf: [{ type: "number" }, { type: "string", pattern: "pi" }] } },
);

export const numberList = listOf(number);

const checked = (isValid: (x: number) => boolean, what: string | ((got: unknown) => string), json: object) =>
  described(
    number.refine(isValid, {
      error: ({ input }) => `${typeof what === "string" ? what : what(input)}, got ${show(input)}`,
    }),
    { json: { anyOf: undefined, ...json } },
  );

/** Throws if keys of different groups are given: they would contradict each other. */
export function exclusive(given: object, ...groups: readonly (readonly string[])[]): void {
  const used = groups
    .map((keys) => keys.find((key) => (given as Record<string, unknown>)[key] !== undefined))
    .filter((key) => key !== undefined);
  if (used.length > 1) throw new SpecError(`"${used[0]}" and "${used[1]}" contradict each other; give one of them`);
}

/** A whole number that is not below `low`, nor above what memory can hold. */
export const wholeNumber = (low: number, high = 1e7) =>
  checked(
    (x) => Number.isInteger(x) && x >= low && x <= high,
    (got) => (Number(got) > high ? `must be at most ${high}` : `expected a whole number >= ${low}`),
    { type: "integer", minimum: low, maximum: high },
  );

const above0 = { type: "number", exclusiveMinimum: 0 };

/** A number above 0, or from 0 on. */
export const above = (low: "positive" | "zero") =>
  low === "positive"
    ? checked((x) => x > 0, "must be above 0", above0)
    : checked((x) => x >= 0, "must not be negative", { type: "number", minimum: 0 });

export const positiveTime = checked((x) => x > 0, "must be a positive time in ns", above0);

/** The issue to report: a misspelled key explains a missing one. */
const firstOf = (issues: readonly z.core.$ZodIssue[]): z.core.$ZodIssue =>
  issues.find(({ code }) => code === "unrecognized_keys") ?? issues[0];

/**
 * The schema that a function chooses for the raw value: a union whose errors are those of one member. `oneOf`: the schemas
 * that it may choose.
 */
export const selectSchema = <T extends z.ZodType>(choose: (raw: unknown) => T, oneOf: readonly z.ZodType[] = []) =>
  described(
    z.unknown().transform((value, context): z.output<T> => {
      const result = choose(value).safeParse(value);
      if (result.success) return result.data;
      const { message, path } = firstOf(result.error.issues);
      context.addIssue({ code: "custom", message, path: [...path] });
      return z.NEVER;
    }),
    oneOf.length > 0 ? { oneOf } : {},
  );

/** One schema per value of the key `tag`. */
export const variants = <T extends z.ZodType>(tag: string, options: Readonly<Record<string, T>>) => {
  const unknown = z.looseObject(
    { [tag]: choiceOf(Object.keys(options)) },
    { error: (issue) => expected("keys and values", issue.input) },
  ) as unknown as T;
  const schema = selectSchema((raw) => {
    const name = isObject(raw) ? raw[tag] : undefined;
    return typeof name === "string" && Object.hasOwn(options, name) ? options[name] : unknown;
  });
  return described(schema, { oneOf: Object.values(options), tag: { key: tag, values: Object.keys(options) } });
};

/** A value made of what the schema reads; a WeftError of `make` becomes an error at this place. */
export const construct = <S extends z.ZodType, T>(schema: S, make: (value: z.output<S>) => T) =>
  schema.transform((value, context): T => {
    try {
      return make(value);
    } catch (error) {
      if (!(error instanceof WeftError)) throw error;
      context.addIssue({ code: "custom", message: error.message });
      return z.NEVER;
    }
  });

const placeOf = (path: readonly PropertyKey[]): string =>
  path.reduce<string>(
    (place, key) =>
      typeof key === "number" ? `${place}[${key}]` : place === "" ? String(key) : `${place}.${String(key)}`,
    "",
  );

/**
 * Reads a value with a schema.
 *
 * @param name - What the value is part of, such as a file's name: it starts the error message.
 * @param base - Where in it the value lies.
 */
export function readValue<S extends z.ZodType>(
  schema: S,
  value: unknown,
  name: string,
  base: readonly string[] = [],
): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const { message, path } = firstOf(result.error.issues);
  const place = [...base, ...path];
  const isMissing = message === missing && place.length > 0;
  const where = placeOf(isMissing ? place.slice(0, -1) : place);
  const what = isMissing ? `the key "${String(place.at(-1))}" is missing` : message;
  throw new SpecError([name, where, what].filter((part) => part !== "").join(": "));
}

/** The data of a YAML (or JSON) text; an empty text is an empty object. */
export function parseSpecYaml(source: string, name: string): unknown {
  try {
    return parse(source) ?? {};
  } catch (error) {
    throw new SpecError(`${name}: ${(error as Error).message}`);
  }
}
