// Checked access to the fields of config.json: every number has bounds, every choice a list, and errors name the field.
import { type JsonObject, ModelError } from "./json.js";

const show = (value: unknown): string => (JSON.stringify(value) ?? "undefined").slice(0, 80);

/** Bounds and default of a number. */
export interface NumberField {
  /** Value of an absent or null field; without one the field is required. */
  otherwise?: number;
  least?: number;
  most?: number;
}

/** Reads the fields of one configuration. */
export class Fields {
  constructor(
    /** The object as parsed. */
    readonly raw: JsonObject,
    /** How errors name the object. */
    readonly label = "config.json",
  ) {}

  /** An error about a field. */
  error(name: string, problem: string): ModelError {
    return new ModelError(`${this.label}: ${name} ${problem}`);
  }

  has(name: string): boolean {
    return Object.hasOwn(this.raw, name) && this.raw[name] !== null && this.raw[name] !== undefined;
  }

  private value(name: string): unknown {
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
    const names = this.has("id2label") ? Object.keys(this.object("id2label").raw).length : 2;
    return this.count("num_labels", { otherwise: names, most: 2 ** 20 });
  }

  /** Fields that every architecture has. */
  common(): { initializerRange: number; labels: number; padToken: number | null } {
    return {
      initializerRange: this.number("initializer_range", { otherwise: 0.02, most: 100 }),
      labels: this.labels(),
      padToken: this.has("pad_token_id") ? this.count("pad_token_id", { least: 0 }) : null,
    };
  }

  /** Throws unless an option has the only value that is implemented. */
  refuse(name: string, isUnsupported: (value: unknown) => boolean, remedy: string): void {
    const value = this.value(name);
    if (value !== undefined && isUnsupported(value))
      throw this.error(name, `is ${show(value)}, which is not supported; ${remedy}`);
  }
}
