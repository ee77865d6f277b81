// Reports of profilers as SQLite databases: each profiler has a reader that turns its tables into SQL queries whose rows are
// events of a Chrome trace, which the one parser reads. Only plain tables and columns are read: views, virtual tables and
// generated columns run what the author of the file wrote, for as long as they like.
import type sqlite from "node-sqlite3-wasm";
import type { TraceStream } from "./stream.js";

type Database = InstanceType<typeof sqlite.Database>;
type SqliteRow = Record<string, number | bigint | string | Uint8Array | null>;

const magic = "SQLite format 3\0";

export const isSqlite = (head: Buffer): boolean => head.toString("latin1", 0, magic.length) === magic;

/** Profilers whose databases are read. */
export type SqliteSource = "nsight" | "rocpd";

/** What a reader makes of a database. */
export interface SqliteTrace {
  source: SqliteSource;
  /** Accelerators, by the numbers that the events use. */
  deviceNames: string[];
  /** Origin of the times, in nanoseconds since 1970, as text; null where the database does not say. */
  baseNanoseconds: string | null;
  /** Queries of one column, `event`: a JSON object. */
  events: string[];
  /** Queries of ranges that the program marked: `name`, and `event` as fields of a JSON object. */
  ranges: string[];
  /** What the database lacks. */
  problems?: string[];
}

/** Bytes of the texts in one row of a table that is joined. */
const longestText = 1 << 16;

/** Devices beyond this number are not distinguished. */
export const mostPlaces = 4096;

const stepName = /^(?:ProfilerStep|step|iteration|iter|train_step|training_step)\s*[#:_= -]?\s*(\d{1,9})$/i;

/** Whole nanoseconds as microseconds with three decimals: exact. */
const microseconds = (value: string): string =>
  `printf('%s%d.%03d', CASE WHEN ${value} < 0 THEN '-' ELSE '' END, abs(${value}) / 1000, abs(${value}) % 1000)`;

/** Start and duration of a row `t` as fields of an event. */
export const timeColumns = `',"ts":' || ${microseconds("CAST(t.start AS INTEGER)")} || ',"dur":' || ${microseconds("(CAST(t.end AS INTEGER) - CAST(t.start AS INTEGER))")}`;

/** Longer names are cut: every row repeats its name. */
export const longestName = 4096;

/** A text as a JSON string. */
export const quoted = (value: string): string =>
  `json_quote(substr(CAST(coalesce(${value}, '') AS TEXT), 1, ${longestName}))`;

/** Size and bandwidth of a copy of `bytes` as arguments of an event. */
export const copyArguments = (bytes: string): string =>
  `',"bytes":' || CAST(${bytes} AS INTEGER) || CASE WHEN t.end > t.start THEN ',"memory bandwidth (GB/s)":' || printf('%.9f', 1.0 * ${bytes} / (t.end - t.start)) ELSE '' END`;

/** The plain tables of a database. */
export class SqliteReport {
  private readonly columns = new Map<string, ReadonlySet<string>>();
  private readonly keys = new Map<string, string>();
  private readonly checked = new Set<string>();
  private readonly isJoinable = new Map<string, boolean>();

  constructor(private readonly db: Database) {
    // Otherwise the check of a table evaluates expressions of the author of the file.
    db.exec("PRAGMA ignore_check_constraints = ON");
    const tables = db.all(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' LIMIT 10000",
    ) as SqliteRow[];
    for (const { name } of tables) {
      const info = db.all(`SELECT name, hidden, pk FROM pragma_table_xinfo(?)`, [String(name)]) as SqliteRow[];
      const plain = info.filter(({ hidden }) => Number(hidden) === 0).map((column) => String(column["name"]));
      this.columns.set(String(name), new Set(plain));
      const keys = info.filter(({ pk }) => Number(pk) > 0);
      if (keys.length === 1) this.keys.set(String(name), String(keys[0]["name"]));
    }
  }

  has(table: string, ...columns: string[]): boolean {
    const cached = this.columns.get(table);
    if (cached === undefined || !columns.every((column) => cached.has(column))) return false;
    this.check(table);
    return true;
  }

  /** Throws where the pages of a table are no tree: one that contains a page many times has rows without end. */
  private check(table: string): void {
    if (this.checked.has(table)) return;
    this.checked.add(table);
    const [row] = this.rows(`PRAGMA quick_check("${table.replaceAll('"', '""')}")`);
    const result = String(Object.values(row ?? {})[0]);
    if (result !== "ok") throw new Error(`the SQLite file is damaged (${result.slice(0, 200)})`);
  }

  /**
   * Like `has`, for a table that is joined by `id`: without a key, ids that repeat would multiply the rows of both tables; and a
   * text of megabytes would be read once per row.
   */
  hasIds(table: string, ...columns: string[]): boolean {
    if (!this.has(table, "id", ...columns) || this.keys.get(table) !== "id") return false;
    let known = this.isJoinable.get(table);
    if (known === undefined) {
      const lengths = columns.map((column) => `coalesce(length(CAST("${column}" AS BLOB)), 0)`).join(" + ");
      const [row] = this.rows(`SELECT 1 FROM "${table}" WHERE ${lengths} > ${longestText} LIMIT 1`);
      this.isJoinable.set(table, (known = row === undefined));
    }
    return known;
  }

  get tables(): string[] {
    return [...this.columns.keys()];
  }

  rows(sql: string): SqliteRow[] {
    return this.db.all(sql) as SqliteRow[];
  }
}

interface SqliteOptions {
  onProblem?: (problem: string) => void;
  onProgress?: (bytes: number, total: number) => void | Promise<void>;
  signal?: AbortSignal;
}

/** Feeds the events of a database to a stream. Throws where none of the readers knows its tables. */
export async function streamSqlite(
  file: string,
  stream: TraceStream,
  readers: readonly ((report: SqliteReport) => SqliteTrace | null)[],
  options: SqliteOptions = {},
): Promise<SqliteSource> {
  const db = await open(file);
  try {
    const report = new SqliteReport(db);
    let trace: SqliteTrace | null = null;
    for (const reader of readers) trace ??= reader(report);
    if (trace === null)
      throw new Error(
        "this SQLite file has none of the tables of Nsight Systems (nsys export --type sqlite writes them) or of rocprofv3 (rocpd)",
      );
    for (const problem of trace.problems ?? []) options.onProblem?.(problem);
    stream.push(Buffer.from(header(trace)));
    let without = 0;
    for (const sql of trace.events) without += await push(db, sql, stream, options, (row) => String(row["event"]));
    if (without > 0) options.onProblem?.(`${without} rows without times, or that end before they begin, were left out`);
    for (const sql of trace.ranges)
      await push(db, sql, stream, options, ({ name, event }) => {
        const step = stepName.exec(String(name ?? ""));
        const args = step === null ? "" : `,"args":{"step_num":${Number(step[1])}}`;
        return `{"ph":"X","cat":"user_annotation","name":${JSON.stringify(String(name ?? ""))},${String(event)}${args}}`;
      });
    stream.push(Buffer.from("]}"));
    return trace.source;
  } finally {
    db.close();
  }
}

function header({ deviceNames, baseNanoseconds }: SqliteTrace): string {
  const base = baseNanoseconds === null ? "" : `"baseTimeNanoseconds":${baseNanoseconds},`;
  const properties = JSON.stringify(deviceNames.map((name, id) => ({ id, name })));
  return `{${base}"deviceProperties":${properties},"traceEvents":[{"ph":"M","name":"process_sort_index","pid":0,"tid":0}`;
}

async function open(file: string): Promise<Database> {
  // Loaded when it is needed: most traces are JSON.
  const { default: sqlite } = await import("node-sqlite3-wasm");
  try {
    return new sqlite.Database(file, { readOnly: true, fileMustExist: true });
  } catch (error) {
    throw new Error(`the SQLite file cannot be opened: ${(error as Error).message}`);
  }
}

const rowsPerPush = 256;

/** Returns the number of rows that gave no event. */
async function push(
  db: Database,
  sql: string,
  stream: TraceStream,
  options: SqliteOptions,
  eventOf: (row: SqliteRow) => string,
): Promise<number> {
  const statement = db.prepare(sql);
  let pending = "";
  let rows = 0;
  let without = 0;
  try {
    for (const row of statement.iterate() as Iterable<SqliteRow>) {
      // A row whose numbers are missing gives no event.
      if (row["event"] === null) {
        without++;
        continue;
      }
      pending += `,${eventOf(row)}`;
      if (++rows % rowsPerPush !== 0) continue;
      stream.push(Buffer.from(pending));
      pending = "";
      if (rows % (rowsPerPush * 64) === 0) {
        options.signal?.throwIfAborted();
        await options.onProgress?.(stream.bytesRead, stream.bytesRead);
      }
    }
    stream.push(Buffer.from(pending));
    return without;
  } finally {
    statement.finalize();
  }
}
