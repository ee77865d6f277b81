// Turns a zod schema into a fast, lenient check for files with millions of lines. It mutates the value: optional fields of
// the wrong kind are removed and reported, and fields with an old spelling are renamed. Unknown fields are kept.
import { z } from "zod";

/** Result of a check that failed. */
const bad = Symbol("bad");

/** What a check found: the path of the required field that failed, and the optional fields that were removed. */
interface CheckReport {
  missing: string;
  dropped: readonly string[];
}

/** Returns the accepted value, or `bad`. `path` is the dotted path of the value in the record. */
type Checker = (value: unknown, report: CheckReport, path: string) => unknown;

/** British spellings of earlier versions, still read. */
const renamedFields: Record<string, string> = { utilisationPercent: "utilizationPercent" };
const renamedValues: Record<string, string> = { cancelled: "canceled" };

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function unwrap(schema: z.ZodType): { inner: z.ZodType; optional: boolean } {
  return schema instanceof z.ZodOptional
    ? { inner: schema.unwrap() as z.ZodType, optional: true }
    : { inner: schema, optional: false };
}

/** The kind of value that a schema accepts, for messages. */
export function kindName(schema: z.ZodType): string {
  const { inner } = unwrap(schema);
  if (inner instanceof z.ZodNumber) return inner.isInt ? "integer" : "number";
  if (inner instanceof z.ZodEnum) return `one of ${inner.options.join(", ")}`;
  if (inner instanceof z.ZodRecord) return "object";
  return inner.def.type;
}

function numberChecker(schema: z.ZodNumber): Checker {
  const least = schema.minValue ?? Number.NEGATIVE_INFINITY;
  const most = schema.maxValue ?? Number.POSITIVE_INFINITY;
  const whole = schema.isInt;
  return (value) =>
    typeof value === "number" &&
    value >= least &&
    value <= most &&
    (whole ? Number.isSafeInteger(value) : Number.isFinite(value))
      ? value
      : bad;
}

function enumChecker(schema: z.ZodEnum): Checker {
  const options = new Set<unknown>(schema.options);
  return (value) => {
    if (options.has(value)) return value;
    const renamed = typeof value === "string" && Object.hasOwn(renamedValues, value) ? renamedValues[value] : bad;
    return options.has(renamed) ? renamed : bad;
  };
}

const join = (path: string, name: string): string => (path === "" ? name : `${path}.${name}`);

function objectChecker(schema: z.ZodObject): Checker {
  const fields = Object.entries(schema.shape as Record<string, z.ZodType>).map(([name, field]) => {
    const { inner, optional } = unwrap(field);
    const nested = inner instanceof z.ZodObject || inner instanceof z.ZodArray;
    return { name, optional, nested, check: checker(inner) };
  });
  const names = new Set(fields.map(({ name }) => name));
  const renamed = Object.entries(renamedFields).filter(([, now]) => names.has(now));
  return (value, report, path) => {
    if (!isObject(value)) return bad;
    for (const [old, now] of renamed)
      if (Object.hasOwn(value, old)) {
        value[now] ??= value[old];
        delete value[old];
      }
    for (const { name, optional, nested, check } of fields) {
      const field = value[name];
      if (field === undefined && optional) continue;
      const accepted = check(field, report, nested ? join(path, name) : "");
      if (accepted === bad) {
        const at = join(path, name);
        if (!optional) {
          if (report.missing === "") report.missing = at;
          return bad;
        }
        delete value[name];
        report.missing = "";
        // `null` stands for "not known" in some writers and is not worth a report.
        if (field !== null) report.dropped = [...report.dropped, at];
      } else if (accepted !== field) value[name] = accepted;
    }
    return value;
  };
}

/** Compiles a schema. Kinds without a compiled form are checked by zod itself. */
function checker(schema: z.ZodType): Checker {
  if (schema instanceof z.ZodNumber) return numberChecker(schema);
  if (schema instanceof z.ZodString && schema.def.checks === undefined)
    return (value) => (typeof value === "string" ? value : bad);
  if (schema instanceof z.ZodBoolean) return (value) => (typeof value === "boolean" ? value : bad);
  if (schema instanceof z.ZodLiteral) return (value) => (schema.values.has(value as never) ? value : bad);
  if (schema instanceof z.ZodEnum) return enumChecker(schema);
  if (schema instanceof z.ZodObject) return objectChecker(schema);
  if (schema instanceof z.ZodArray) {
    const item = checker(schema.element as z.ZodType);
    return (value, report, path) => {
      if (!Array.isArray(value)) return bad;
      for (let i = 0; i < value.length; i++) {
        const accepted = item(value[i], report, path);
        if (accepted === bad) return bad;
        value[i] = accepted;
      }
      return value;
    };
  }
  return (value) => (schema.safeParse(value).success ? value : bad);
}

/** A value that matches its schema after invalid optional fields were removed, or the path of the required field that fails. */
export type Lenient<T> = { ok: true; value: T; dropped: readonly string[] } | { ok: false; field: string };

/** Compiles a schema into a lenient parser. The parser mutates the value that it is given. */
export function lenientParser<T>(schema: z.ZodType<T>): (value: unknown) => Lenient<T> {
  const check = checker(schema);
  return (value) => {
    const report: CheckReport = { missing: "", dropped: none };
    return check(value, report, "") === bad
      ? { ok: false, field: report.missing }
      : { ok: true, value: value as T, dropped: report.dropped };
  };
}
const none: readonly string[] = [];

/** Paths of the fields of a value that its schema does not name: what a writer adds without telling the readers. */
export function unknownFields(schema: z.ZodType, value: unknown, path = ""): string[] {
  const { inner } = unwrap(schema);
  if (inner instanceof z.ZodArray && Array.isArray(value))
    return value.flatMap((item) => unknownFields(inner.element as z.ZodType, item, path));
  if (inner instanceof z.ZodDiscriminatedUnion && isObject(value)) {
    const { discriminator, options } = inner.def as unknown as { discriminator: string; options: z.ZodObject[] };
    const option = options.find(
      ({ shape }) => (shape[discriminator] as z.ZodType).safeParse(value[discriminator]).success,
    );
    return option === undefined ? [join(path, discriminator)] : unknownFields(option, value, path);
  }
  if (!(inner instanceof z.ZodObject) || !isObject(value)) return [];
  const shape = inner.shape as Record<string, z.ZodType>;
  return Object.entries(value).flatMap(([name, field]) => {
    const at = join(path, name);
    return Object.hasOwn(shape, name) ? unknownFields(shape[name], field, at) : [at];
  });
}
