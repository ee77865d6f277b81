// Reports of Nsight Systems as SQLite (nsys export --type sqlite): kernels, copies, calls of the runtime and NVTX ranges become
// events of a Chrome trace for the one reader. SQL formats the events. Every process and device becomes a device of its own.
import sqlite from "node-sqlite3-wasm";
import type { TraceStream } from "./stream.js";

type Database = InstanceType<typeof sqlite.Database>;
type Row = Record<string, number | bigint | string | Uint8Array | null>;

const magic = "SQLite format 3\0";

export const isSqlite = (head: Buffer): boolean => head.toString("latin1", 0, magic.length) === magic;

/** Copy kinds and kinds of memory, by the numbers of CUPTI. */
const copyKinds = ["Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"];
const memoryKinds = ["Pageable", "Pinned", "Device", "Array", "Unified"];

const stepName = /^(?:ProfilerStep|step|iteration|iter|train_step|training_step)\s*[#:_= -]?\s*(\d{1,9})$/i;
/** NVTX: ranges of push and pop, and of start and end. */
const nvtxRanges = "59, 60";
const mostPlaces = 4096;

const choose = (value: string, names: readonly string[], otherwise: string): string =>
  `CASE ${value} ${names.map((name, i) => `WHEN ${i} THEN '${name}'`).join(" ")} ELSE '${otherwise}' END`;
const pidOf = (column: string): string => `((${column} >> 24) & 0xFFFFFF)`;
/** Whole nanoseconds as microseconds with three decimals: exact. */
const microseconds = (value: string): string =>
  `printf('%s%d.%03d', CASE WHEN ${value} < 0 THEN '-' ELSE '' END, abs(${value}) / 1000, abs(${value}) % 1000)`;
const times = `',"ts":' || ${microseconds("CAST(t.start AS INTEGER)")} || ',"dur":' || ${microseconds("(CAST(t.end AS INTEGER) - CAST(t.start AS INTEGER))")}`;
const quoted = (value: string): string => `json_quote(CAST(coalesce(${value}, '') AS TEXT))`;

class Report {
  private readonly columns = new Map<string, ReadonlySet<string>>();
  /** Pairs of process and device, in order; each is a device of the trace. */
  readonly places: { pid: number; device: number }[] = [];

  constructor(private readonly db: Database) {
    // Views and virtual tables could run code of the file's author for as long as it likes.
    const tables = db.all(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'",
    ) as Row[];
    for (const { name } of tables) {
      const info = db.all(`SELECT name, hidden FROM pragma_table_xinfo(?)`, [String(name)]) as Row[];
      // Generated columns are expressions of the file's author.
      const plain = info.filter(({ hidden }) => Number(hidden) === 0).map((column) => String(column["name"]));
      this.columns.set(String(name), new Set(plain));
    }
  }

  has(table: string, ...columns: string[]): boolean {
    const known = this.columns.get(table);
    return known !== undefined && columns.every((column) => known.has(column));
  }

  get tables(): string[] {
    return [...this.columns.keys()];
  }

  rows(sql: string): Row[] {
    return this.db.all(sql) as Row[];
  }

  /** Device tables that this report has, by their suffix. */
  get activities(): { kind: string; table: string }[] {
    return ["KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"]
      .map((kind) => ({ kind, table: `CUPTI_ACTIVITY_KIND_${kind}` }))
      .filter(({ table }) => this.has(table, "start", "end", "deviceId", "streamId", "correlationId"));
  }

  findPlaces(): void {
    if (this.activities.length === 0) return;
    const union = this.activities
      .map(
        ({ table }) => `SELECT DISTINCT ${this.pid(table)} AS pid, CAST(deviceId AS INTEGER) AS device FROM ${table} t`,
      )
      .join(" UNION ");
    for (const { pid, device } of this.rows(`${union} ORDER BY 1, 2 LIMIT ${mostPlaces}`))
      this.places.push({ pid: Number(pid), device: Number(device) });
  }

  private pid(table: string): string {
    return this.has(table, "globalPid") ? pidOf("t.globalPid") : "0";
  }

  /** Correlation ids count per process. */
  correlation(pid: string): string {
    const processes = [...new Set(this.places.map((place) => place.pid))];
    if (processes.length < 2) return "t.correlationId";
    const index = processes.map((id, i) => `WHEN ${id} THEN ${i}`).join(" ");
    return `((CASE ${pid} ${index} ELSE ${processes.length} END) * 4294967296 + t.correlationId)`;
  }

  private place(pid: string): string {
    if (this.places.length < 2) return "0";
    const index = this.places.map(
      (place, i) => `WHEN ${pid} = ${place.pid} AND t.deviceId = ${place.device} THEN ${i}`,
    );
    return `CASE ${index.join(" ")} ELSE 0 END`;
  }

  /** Events of what ran on devices. */
  deviceQuery(kind: string, table: string): string {
    const pid = this.pid(table);
    const name = this.deviceName(kind, table);
    const category = kind === "MEMCPY" ? "gpu_memcpy" : kind === "MEMSET" ? "gpu_memset" : "kernel";
    const bytes = this.has(table, "bytes")
      ? `|| ',"bytes":' || CAST(t.bytes AS INTEGER) || CASE WHEN t.end > t.start THEN ',"memory bandwidth (GB/s)":' || printf('%.9f', 1.0 * t.bytes / (t.end - t.start)) ELSE '' END`
      : "";
    const place = this.place(pid);
    const join = kind === "KERNEL" ? `LEFT JOIN StringIds s ON s.id = t.${this.nameColumn(table)}` : "";
    return `SELECT '{"ph":"X","cat":"${category}","name":' || ${quoted(name)} || ',"pid":' || ${place} || ',"tid":' || CAST(t.streamId AS INTEGER) || ${times} || ',"args":{"device":' || ${place} || ',"stream":' || CAST(t.streamId AS INTEGER) || ',"correlation":' || ${this.correlation(pid)} ${bytes} || '}}' AS event FROM ${table} t ${join} WHERE t.end >= t.start ORDER BY t.start`;
  }

  private nameColumn(table: string): string {
    return ["demangledName", "shortName", "mangledName"].find((column) => this.has(table, column)) ?? "rowid";
  }

  private deviceName(kind: string, table: string): string {
    if (kind === "KERNEL") return "s.value";
    if (kind === "GRAPH_TRACE") return "'CUDA graph ' || coalesce(t.graphId, '')";
    if (kind === "MEMSET") return "'Memset (Device)'";
    const copy = this.has(table, "copyKind") ? choose("t.copyKind", copyKinds, "Unknown") : "'Unknown'";
    const memory = (column: string): string => choose(`t.${column}`, memoryKinds, "Unknown");
    const between = this.has(table, "srcKind", "dstKind")
      ? ` || ' (' || ${memory("srcKind")} || ' -> ' || ${memory("dstKind")} || ')'`
      : "";
    return `'Memcpy ' || ${copy}${between}`;
  }

  /** Calls of the runtime and the driver; their names end in the version of the interface. */
  callQuery(): string | null {
    const table = "CUPTI_ACTIVITY_KIND_RUNTIME";
    if (!this.has(table, "start", "end", "globalTid", "correlationId", "nameId")) return null;
    const bare = "rtrim(s.value, '0123456789')";
    const name = `CASE WHEN substr(${bare}, -2) = '_v' THEN substr(${bare}, 1, length(${bare}) - 2) ELSE s.value END`;
    return `SELECT '{"ph":"X","cat":"cuda_runtime","name":' || ${quoted(name)} || ',"pid":' || ${pidOf("t.globalTid")} || ',"tid":' || (t.globalTid & 0xFFFFFF) || ${times} || ',"args":{"correlation":' || ${this.correlation(pidOf("t.globalTid"))} || '}}' AS event FROM ${table} t LEFT JOIN StringIds s ON s.id = t.nameId WHERE t.end >= t.start ORDER BY t.start`;
  }

  /** Ranges of the program's own marks, with their names apart: those that number steps become steps. */
  rangeQuery(): string | null {
    if (!this.has("NVTX_EVENTS", "start", "end", "text", "globalTid", "eventType")) return null;
    const named = this.has("NVTX_EVENTS", "textId") ? "coalesce(t.text, s.value)" : "t.text";
    const join = this.has("NVTX_EVENTS", "textId") ? "LEFT JOIN StringIds s ON s.id = t.textId" : "";
    return `SELECT CAST(${named} AS TEXT) AS name, '"pid":' || ${pidOf("t.globalTid")} || ',"tid":' || (t.globalTid & 0xFFFFFF) || ${times} AS event FROM NVTX_EVENTS t ${join} WHERE t.end >= t.start AND t.eventType IN (${nvtxRanges}) ORDER BY t.start`;
  }

  /** The header of the trace: names of the devices, and the clock. */
  header(): string {
    const names = this.has("TARGET_INFO_GPU", "id", "name")
      ? new Map(
          this.rows("SELECT id, name FROM TARGET_INFO_GPU LIMIT 1024").map((gpu) => [
            Number(gpu["id"]),
            String(gpu["name"]),
          ]),
        )
      : new Map<number, string>();
    const properties = this.places.map(({ device }, id) => ({
      id,
      name: names.get(device) ?? [...names.values()][0] ?? "unknown",
    }));
    const clock = "TARGET_INFO_SESSION_START_TIME";
    const start = this.has(clock, "utcEpochNs")
      ? this.rows(`SELECT CAST(utcEpochNs AS TEXT) AS ns FROM ${clock} LIMIT 1`)[0]
      : null;
    const base = /^\d{1,19}$/.test(String(start?.["ns"])) ? `"baseTimeNanoseconds":${String(start?.["ns"])},` : "";
    return `{${base}"deviceProperties":${JSON.stringify(properties)},"traceEvents":[{"ph":"M","name":"process_sort_index","pid":0,"tid":0}`;
  }
}

interface NsysOptions {
  onProgress?: (bytes: number, total: number) => void | Promise<void>;
  signal?: AbortSignal;
}

/** Feeds the events of a report to a stream. Throws where the file is no report of Nsight Systems. */
export async function streamNsys(file: string, stream: TraceStream, options: NsysOptions = {}): Promise<void> {
  const db = open(file);
  try {
    const report = new Report(db);
    report.findPlaces();
    const calls = report.callQuery();
    if (report.activities.length === 0 && calls === null)
      throw new Error(
        report.tables.some((name) => name.startsWith("rocpd_"))
          ? "this is a database of rocprofv3 (rocpd), which is not read; write its JSON for Perfetto instead (--output-format pftrace or json)"
          : "this SQLite file has none of the tables of Nsight Systems (nsys export --type sqlite writes them)",
      );
    stream.push(Buffer.from(report.header()));
    const queries = report.activities.map(({ kind, table }) => report.deviceQuery(kind, table));
    if (calls !== null) queries.push(calls);
    for (const sql of queries) await push(db, sql, stream, options, (row) => String(row["event"]));
    const ranges = report.rangeQuery();
    if (ranges !== null)
      await push(db, ranges, stream, options, ({ name, event }) => {
        const step = stepName.exec(String(name ?? ""));
        const args = step === null ? "" : `,"args":{"step_num":${Number(step[1])}}`;
        return `{"ph":"X","cat":"user_annotation","name":${JSON.stringify(String(name ?? ""))},${String(event)}${args}}`;
      });
    stream.push(Buffer.from("]}"));
  } finally {
    db.close();
  }
}

function open(file: string): Database {
  try {
    return new sqlite.Database(file, { readOnly: true, fileMustExist: true });
  } catch (error) {
    throw new Error(`the SQLite file cannot be opened: ${(error as Error).message}`);
  }
}

const rowsPerPush = 256;

async function push(
  db: Database,
  sql: string,
  stream: TraceStream,
  options: NsysOptions,
  eventOf: (row: Row) => string,
): Promise<void> {
  const statement = db.prepare(sql);
  let pending = "";
  let rows = 0;
  try {
    for (const row of statement.iterate() as Iterable<Row>) {
      // A row whose numbers are missing gives no event.
      if (row["event"] === null) continue;
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
  } finally {
    statement.finalize();
  }
}
