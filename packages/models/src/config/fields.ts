// Checked access to the fields of config.json: every number has bounds, every choice a list, and errors name the field.
import { type JsonObject, ModelError } from "./json.js";

const show = (value: unknown): string =>
  (typeof value === "number" ? String(value) : (JSON.stringify(value) ?? "undefined")).slice(0, 80);

/** Bounds and default of a number. */
interface NumberField {
  /** Value of an absent or null field; without one the field is required. */
  otherwise?: number;
  least?: number;
  most?: number;
}

/** Reads the fields of one configuration, and records which. */
export class Fields {
  /** Names that were asked for. */
  readonly read = new Set<string>();

  constructor(
    /** The object as parsed. */
    readonly raw: JsonObject,
    /** How errors name the object. */
    readonly label = "config.json",
  ) {}

  /** The same fields under the names that the architecture uses; `aliases` maps other names to these. */
  withAliases(aliases: Readonly<Record<string, string>>): Fields {
    const raw: JsonObject = { ...this.raw };
    for (const [other, name] of Object.entries(aliases)) {
      if (!this.has(other)) continue;
      if (this.has(name) && this.raw[name] !== this.raw[other])
        throw this.error(
          other,
          `is ${show(this.raw[other])}, but ${name}, which means the same, ${show(this.raw[name])}`,
        );
      raw[name] = this.raw[other];
      delete raw[other];
    }
    return new Fields(raw, this.label);
  }

  /** An error about a field. */
  error(name: string, problem: string): ModelError {
    return new ModelError(`${this.label}: ${name} ${problem}`);
  }

  has(name: string): boolean {
    return Object.hasOwn(this.raw, name) && this.raw[name] !== null && this.raw[name] !== undefined;
  }

  private value(name: string): unknown {
    this.read.add(name);
    return this.has(name) ? this.raw[name] : undefined;
  }

  /** A whole number, by default from 1 to 2^24. */
  count(name: string, { otherwise, least = 1, most = 2 ** 24 }: NumberField = {}): number {
    const value = this.number(name, { otherwise, least, most });
    if (!Number.isInteger(value)) throw this.error(name, `is ${show(value)}; it must be a whole number`);
    return value;
  }

  number(name: string, { otherwise, least = 0, most = 1e9 }: NumberField = {}): number {
    const value = this.value(name) ?? otherwise;
    if (value === undefined) throw this.error(name, "is missing");
    if (typeof value !== "number" || !(value >= least && value <= most))
      throw this.error(name, `is ${show(value)}; it must be a number from ${least} to ${most}`);
    return value;
  }

  /** A dropout rate. */
  rate(name: string, otherwise: number): number {
    return this.number(name, { otherwise, most: 0.999 });
  }

  flag(name: string, otherwise: boolean): boolean {
    const value = this.value(name) ?? otherwise;
    if (typeof value !== "boolean") throw this.error(name, `is ${show(value)}; it must be true or false`);
    return value;
  }

  choice<T extends string>(name: string, choices: readonly T[], otherwise: T): T {
    const value = this.value(name) ?? otherwise;
    if (!choices.includes(value as T))
      throw this.error(name, `is ${show(value)}, which is not supported; supported: ${choices.join(", ")}`);
    return value as T;
  }

  /** An object inside; an empty one if it is absent. */
  object(name: string): Fields {
    const value = this.value(name) ?? {};
    if (typeof value !== "object" || Array.isArray(value)) throw this.error(name, `is ${show(value)}, not an object`);
    return new Fields(value as JsonObject, `${this.label}: ${name}`);
  }

  /** Height and width: two numbers, or one for both. */
  pair(name: string, otherwise: number, most: number): readonly [number, number] {
    const value = this.value(name) ?? otherwise;
    const both = Array.isArray(value) ? value : [value, value];
    const [height, width] = both;
    const fits = (x: unknown): x is number => typeof x === "number" && Number.isInteger(x) && x >= 1 && x <= most;
    if (both.length !== 2 || !fits(height) || !fits(width))
      throw this.error(name, `is ${show(value)}; it must be a whole number from 1 to ${most}, or two of them`);
    return [height, width];
  }

  /** A list; null if it is absent. */
  list(name: string): unknown[] | null {
    const value = this.value(name) ?? null;
    if (value !== null && (!Array.isArray(value) || value.length > 2 ** 16))
      throw this.error(name, `is ${show(value)}, not a list`);
    return value;
  }

  /** A list of numbers; empty if it is absent. */
  numbers(name: string): number[] {
    const value = this.value(name) ?? [];
    if (
      !Array.isArray(value) ||
      value.length > 2 ** 16 ||
      !value.every((x) => typeof x === "number" && Number.isFinite(x))
    )
      throw this.error(name, `is ${show(value)}, not a list of numbers`);
    return value as number[];
  }

  /** Number of classes of a head: `num_labels`, or the number of names in `id2label`; 2 by default. */
  labels(): number {
    const named = Object.keys(this.object("id2label").raw).length;
    const count = this.count("num_labels", { otherwise: named === 0 ? 2 : named, most: 2 ** 20 });
    if (named > 0 && named !== count)
      throw this.error("num_labels", `is ${count}, but id2label has ${named} names; remove one of them`);
    return count;
  }

  /** Fields that every architecture has. */
  common(): { initializerRange: number; labels: number; padToken: number | null } {
    // Old checkpoints have a padding id of -1, which no token is.
    const padToken = this.count("pad_token_id", { otherwise: -1, least: -(2 ** 24) });
    return {
      initializerRange: this.number("initializer_range", { otherwise: 0.02, most: 100 }),
      labels: this.labels(),
      padToken: this.has("pad_token_id") ? padToken : null,
    };
  }

  /** Throws unless an option has the only value that is implemented. */
  refuse(name: string, isUnsupported: (value: unknown) => boolean, remedy: string): void {
    const value = this.value(name);
    if (value !== undefined && isUnsupported(value))
      throw this.error(name, `is ${show(value)}, which is not supported; ${remedy}`);
  }
}
