// Arguments of a suite, and the record that it fills. Every suite has the common options; a suite may add its own.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { allowedCores, describeHardware, toolVersions } from "../harness/index.js";
import { type RecordHead, resultFolder, saveRecord } from "./record.js";
import { currentName } from "./report/stored.js";

interface SuiteOption {
  help: string;
  /** Default; a flag has none. */
  value?: string;
  flag?: boolean;
}

export interface Suite {
  options?: Record<string, SuiteOption>;
  /** Defaults of common options where they differ. */
  defaults?: Record<string, string>;
  run(context: Context): Promise<void> | void;
  /** Answers for Weft as a contestant in a process of its own (`serve SUITE`). */
  serve?(context: Context): Promise<void>;
}

export const commonOptions: Record<string, SuiteOption> = {
  rows: { help: "measure only these rows (comma-separated); nothing is written without --out" },
  rounds: { value: "7", help: "rounds; the contestants take turns in each" },
  seconds: { value: "0.5", help: "measuring time per contestant and round" },
  cores: { help: "cores to measure on, such as 0,1" },
  patience: { value: "20", help: "seconds to wait per round for other processes to leave the cores idle" },
  device: { value: "cpu", help: "cpu or cuda" },
  python: { value: "python3", help: "Python of the peers" },
  "no-peers": { flag: true, help: "do not run peers" },
  quick: { flag: true, help: "tiny sizes, one short round, no peers: checks that the suite runs" },
  out: { help: "result file" },
};

const quickDefaults: Record<string, string> = { rounds: "1", seconds: "0.01", patience: "0" };

export class Context {
  readonly #values: Record<string, string | boolean | undefined>;
  readonly suite: string;
  readonly cores: number[];
  readonly quick: boolean;
  readonly peers: boolean;
  /** Requested rows, undefined for all; names of older versions are accepted. */
  readonly rows: string[] | undefined;
  readonly device: string;

  constructor(suite: string, { options = {}, defaults = {} }: Suite, args: readonly string[]) {
    const known = { ...commonOptions, ...options };
    const { values } = parseArgs({
      args: [...args],
      options: Object.fromEntries(
        Object.entries(known).map(([name, { flag }]) => [name, { type: flag ? "boolean" : "string" }]),
      ),
    });
    const given = values as Record<string, string | boolean | undefined>;
    const fallbacks = Object.fromEntries(Object.entries(known).map(([name, { value }]) => [name, value]));
    this.#values = { ...fallbacks, ...defaults, ...(given.quick && quickDefaults), ...given };
    this.suite = suite;
    this.quick = given.quick === true;
    this.peers = !this.quick && given["no-peers"] !== true;
    this.rows = this.text("rows")?.split(",").map(currentName);
    this.cores = this.text("cores")?.split(",").map(Number) ?? allowedCores();
    this.device = this.text("device") ?? "cpu";
  }

  text(name: string): string | undefined {
    const value = this.#values[name];
    return typeof value === "string" ? value : undefined;
  }

  flag(name: string): boolean {
    return this.#values[name] === true;
  }

  number(name: string): number {
    const value = Number(this.text(name));
    if (!Number.isFinite(value) || value < 0)
      throw new Error(`--${name} ${this.text(name)}: expected a number that is not negative`);
    return value;
  }

  numbers(name: string): number[] {
    return (this.text(name) ?? "").split(",").map((part) => {
      if (!/^\d+$/.test(part)) throw new Error(`--${name}: "${part}" is not a whole number`);
      return Number(part);
    });
  }

  /** The requested rows in order; an unknown name is an error that lists the known ones. */
  choose<T extends { id: string }>(rows: readonly T[]): T[] {
    const unknown = this.rows?.find((id) => !rows.some((row) => row.id === id));
    if (unknown !== undefined)
      throw new Error(`--rows ${unknown}: unknown row; rows are ${rows.map(({ id }) => id).join(", ")}`);
    return rows.filter(({ id }) => this.rows?.includes(id) ?? true);
  }

  /** Where the record goes: --out, or the result file of the suite when all rows are measured or `always`. */
  resultPath(name: string, always = false): string | null {
    const out = this.text("out");
    if (out !== undefined) return out;
    return this.quick || (this.rows !== undefined && !always) ? null : join(resultFolder, `${name}.json`);
  }

  head(settings: Record<string, unknown> = {}): RecordHead {
    return {
      kind: this.suite,
      device: this.device,
      at: new Date().toISOString(),
      hardware: describeHardware(this.cores),
      versions: toolVersions(),
      settings,
      absent: {},
    };
  }

  /**
   * A record with its file. `merge` starts from the existing file, so that parts that are not measured now stay; `always`
   * writes the result file also for a choice of rows.
   */
  open<T extends object>(
    name: string,
    content: T,
    options: { merge?: boolean; always?: boolean; settings?: Record<string, unknown> } = {},
  ): { record: RecordHead & T; save(): void; path: string | null } {
    const path = this.resultPath(name, options.merge || options.always);
    const before = options.merge && path !== null && existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {};
    const record = { ...content, ...before, ...this.head(options.settings) } as RecordHead & T;
    return { record, path, save: () => saveRecord(path, record) };
  }

  log(text: string): void {
    process.stderr.write(`bench: ${text}\n`);
  }
}
