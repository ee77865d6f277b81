// Reading a user's file with care: every key is known, every number is a number, and a wrong one is named with its place.
import { WeftError } from "@weft/core/internal/graph";
import { suggestion } from "../systems/index.js";

export type Raw = Record<string, unknown>;

export class SpecError extends WeftError {}

export function fail(where: string, what: string): never {
  throw new SpecError(`${where}: ${what}`);
}

export function objectAt(value: unknown, where: string): Raw {
  if (value === null || typeof value !== "object" || Array.isArray(value))
    fail(where, `expected keys and values, got ${show(value)}`);
  return value as Raw;
}

const show = (value: unknown): string => {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
};

/** Refuses keys that nobody reads. */
export function checkKeys(raw: Raw, known: readonly string[], where: string): void {
  for (const key of Object.keys(raw))
    if (!known.includes(key))
      fail(where, `there is no key "${key}"${suggestion(key, known)} (known: ${known.join(", ")})`);
}

/** Numbers, and the few expressions that angles are written with: pi, pi/2, 2*pi, -0.5*pi. */
export function numberAt(value: unknown, where: string): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  const match =
    typeof value === "string" ? /^\s*(-?)(?:([\d.]+)\s*\*\s*)?pi(?:\s*\/\s*([\d.]+))?\s*$/.exec(value) : null;
  if (match !== null) return ((match[1] === "-" ? -1 : 1) * Number(match[2] ?? 1) * Math.PI) / Number(match[3] ?? 1);
  fail(where, `expected a number (or pi, 2*pi, pi/2), got ${show(value)}`);
}

export function wholeAt(value: unknown, where: string): number {
  const number = numberAt(value, where);
  if (!Number.isInteger(number) || number < 1) fail(where, `expected a whole number >= 1, got ${show(value)}`);
  return number;
}

export function textAt(value: unknown, where: string, choices?: readonly string[]): string {
  if (typeof value !== "string") fail(where, `expected text, got ${show(value)}`);
  if (choices !== undefined && !choices.includes(value))
    fail(where, `there is no "${value}"${suggestion(value, choices)} (known: ${choices.join(", ")})`);
  return value;
}

export function listAt(value: unknown, where: string): unknown[] {
  if (!Array.isArray(value)) fail(where, `expected a list, got ${show(value)}`);
  return value;
}

export const numbersAt = (value: unknown, where: string): number[] =>
  listAt(value, where).map((x, i) => numberAt(x, `${where}[${i}]`));

export const mapAt = <T>(value: unknown, where: string, read: (x: unknown, where: string) => T): Record<string, T> =>
  Object.fromEntries(Object.entries(objectAt(value, where)).map(([key, x]) => [key, read(x, `${where}.${key}`)]));
