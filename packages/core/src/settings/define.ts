// Definition of settings: environment variables with a type, a default and one sentence of documentation. A value is
// parsed and checked when its text changes; a bad value is an error that names the variable and what it accepts.
import { WeftError } from "../graph/index.js";

type Environment = Readonly<Record<string, string | undefined>>;

/** What a variable accepts, and how its text becomes a value; `parse` returns undefined for a text that it refuses. */
interface SettingType<T> {
  readonly accepts: string;
  parse(text: string): T | undefined;
}

interface Documentation {
  /** One sentence for the reference page. */
  summary: string;
  /** The default in words, where it is not a plain value. */
  otherwise?: string;
  /** An old name that is still read, with a notice; `matches` limits it to texts that mean this setting. */
  formerly?: { name: string; matches?: (text: string) => boolean };
}

/** One environment variable. */
export class Setting<T> {
  #text: string | undefined;
  #value: T;

  constructor(
    readonly name: string,
    readonly type: SettingType<unknown>,
    readonly initial: T,
    readonly documentation: Documentation,
  ) {
    this.#value = initial;
    if (table.has(name)) throw new WeftError(`the setting ${name} is defined twice`);
    table.set(name, this as Setting<unknown>);
  }

  /** Text of the variable, or of its old name; undefined where it is unset or empty. */
  #read(env: Environment): string | undefined {
    const text = env[this.name];
    if (text !== undefined && text !== "") return text;
    const { formerly } = this.documentation;
    const old = formerly === undefined ? undefined : env[formerly.name];
    if (old === undefined || old === "" || formerly?.matches?.(old) === false) return undefined;
    notice(`${formerly!.name}=${old} is called ${this.name} now; the old name is still read`);
    return old;
  }

  /** The value that the environment gives now, or the default. */
  get(env: Environment = process.env): T {
    const text = this.#read(env);
    if (text === this.#text) return this.#value;
    const value = text === undefined ? this.initial : (this.type.parse(text) as T | undefined);
    if (text !== undefined && value === undefined)
      throw new WeftError(`${this.name}="${text.slice(0, 80)}" is not valid: give ${this.type.accepts}, or unset it`);
    [this.#text, this.#value] = [text, value as T];
    return value as T;
  }

  /** Whether the environment sets it. */
  isSet(env: Environment = process.env): boolean {
    return this.#read(env) !== undefined;
  }
}

const table = new Map<string, Setting<unknown>>();

/** All settings that were defined so far, by name. */
export const allSettings = (): Setting<unknown>[] => [...table.values()].sort((a, b) => (a.name < b.name ? -1 : 1));

const noticed = new Set<string>();
function notice(text: string): void {
  if (noticed.has(text)) return;
  noticed.add(text);
  process.stderr.write(`weft: ${text}\n`);
}

const on: ReadonlySet<string> = new Set(["1", "true", "on", "yes"]);
const off: ReadonlySet<string> = new Set(["0", "false", "off", "no"]);

/** A switch. */
export const flagSetting = (name: string, initial: boolean, documentation: Documentation): Setting<boolean> =>
  new Setting(
    name,
    {
      accepts: "1 or 0",
      parse: (text) => (on.has(text.toLowerCase()) ? true : off.has(text.toLowerCase()) ? false : undefined),
    },
    initial,
    documentation,
  );

interface Range {
  least?: number;
  most?: number;
  whole?: boolean;
}

/** A number within a range; whole numbers by default. */
export function numberSetting<T extends number | undefined>(
  name: string,
  initial: T,
  { least = 0, most = Number.MAX_SAFE_INTEGER, whole = true, ...documentation }: Documentation & Range,
): Setting<T extends undefined ? number | undefined : number> {
  const limit = most < Number.MAX_SAFE_INTEGER ? ` from ${least} to ${most}` : ` of at least ${least}`;
  const type = {
    accepts: `a ${whole ? "whole " : ""}number${limit}`,
    parse: (text: string): number | undefined => {
      const value = /^[\d.]+(e\+?\d+)?$/i.test(text.trim()) ? Number(text) : Number.NaN;
      return value >= least && value <= most && (!whole || Number.isInteger(value)) ? value : undefined;
    },
  };
  return new Setting(name, type, initial as never, documentation);
}

/** Any text: a path, an address, a name. */
export const textSetting = (name: string, accepts: string, documentation: Documentation): Setting<string | undefined> =>
  new Setting<string | undefined>(name, { accepts, parse: (value) => value }, undefined, documentation);

/** One of a few words. */
export const choiceSetting = <const T extends string, I extends T | undefined>(
  name: string,
  words: readonly T[],
  initial: I,
  documentation: Documentation,
): Setting<T | I> =>
  new Setting<T | I>(
    name,
    { accepts: words.join(", "), parse: (value) => words.find((word) => word === value) },
    initial,
    documentation,
  );
