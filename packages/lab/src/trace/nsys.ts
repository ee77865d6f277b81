// Reports of Nsight Systems (nsys export --type sqlite): kernels, copies, calls of the runtime and NVTX ranges. Every pair of
// process and device becomes a device of its own.
import {
  copyArguments,
  longestName,
  mostPlaces,
  quoted,
  type SqliteReport,
  type SqliteTrace,
  timeColumns,
} from "./sqlite.js";

/** Copy kinds and kinds of memory, by the numbers of CUPTI. */
const copyKinds = ["Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"];
const memoryKinds = ["Pageable", "Pinned", "Device", "Array", "Unified"];
/** NVTX: ranges of push and pop, and of start and end. */
const nvtxRanges = "59, 60";

const choose = (value: string, names: readonly string[], otherwise: string): string =>
  `CASE ${value} ${names.map((name, i) => `WHEN ${i} THEN '${name}'`).join(" ")} ELSE '${otherwise}' END`;
const pidOf = (column: string): string => `((${column} >> 24) & 0xFFFFFF)`;

/** The queries of a report; null where the database is not a report. */
export function nsysTrace(report: SqliteReport): SqliteTrace | null {
  const nsys = new Nsys(report);
  const calls = nsys.callQuery();
  if (nsys.activities.length === 0 && calls === null) return null;
  const ranges = nsys.rangeQuery();
  return {
    source: "nsight",
    deviceNames: nsys.deviceNames(),
    baseNanoseconds: nsys.baseNanoseconds(),
    events: [
      ...nsys.activities.map(({ kind, table }) => nsys.deviceQuery(kind, table)),
      ...(calls === null ? [] : [calls]),
    ],
    ranges: ranges === null ? [] : [ranges],
    problems: report.hasIds("StringIds", "value")
      ? []
      : ["the table StringIds is missing or cannot be joined: kernels, calls and steps have no names"],
  };
}

class Nsys {
  /** Device tables that this report has, by their suffix. */
  readonly activities: { kind: string; table: string }[];
  /** Pairs of process and device, in order; each is a device of the trace. */
  private readonly places: { pid: number; device: number }[] = [];

  constructor(private readonly report: SqliteReport) {
    this.activities = ["KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"]
      .map((kind) => ({ kind, table: `CUPTI_ACTIVITY_KIND_${kind}` }))
      .filter(({ table }) => report.has(table, "start", "end", "deviceId", "streamId", "correlationId"));
    if (this.activities.length === 0) return;
    const union = this.activities
      .map(
        ({ table }) => `SELECT DISTINCT ${this.pid(table)} AS pid, CAST(deviceId AS INTEGER) AS device FROM ${table} t`,
      )
      .join(" UNION ");
    for (const { pid, device } of report.rows(`${union} ORDER BY 1, 2 LIMIT ${mostPlaces}`))
      this.places.push({ pid: Number(pid), device: Number(device) });
  }

  private pid(table: string): string {
    return this.report.has(table, "globalPid") ? pidOf("t.globalPid") : "0";
  }

  /** Correlation ids count per process. */
  private correlation(pid: string): string {
    const processes = [...new Set(this.places.map((place) => place.pid))];
    // A call without an id is one that started nothing.
    const id = "coalesce(CAST(t.correlationId AS INTEGER), -1)";
    if (processes.length < 2) return id;
    const index = processes.map((id, i) => `WHEN ${id} THEN ${i}`).join(" ");
    return `((CASE ${pid} ${index} ELSE ${processes.length} END) * 4294967296 + ${id})`;
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
    const name = `coalesce(${this.deviceName(kind, table)}, '${kind.toLowerCase()} ' || t.${this.nameColumn(table)})`;
    const category = kind === "MEMCPY" ? "gpu_memcpy" : kind === "MEMSET" ? "gpu_memset" : "kernel";
    const bytes = this.report.has(table, "bytes") ? `|| ${copyArguments("t.bytes")}` : "";
    const place = this.place(pid);
    const join = kind === "KERNEL" ? this.stringJoin(this.nameColumn(table)) : "";
    return `SELECT CASE WHEN t.end >= t.start THEN '{"ph":"X","cat":"${category}","name":' || ${quoted(name)} || ',"pid":' || ${place} || ',"tid":' || CAST(t.streamId AS INTEGER) || ${timeColumns} || ',"args":{"device":' || ${place} || ',"stream":' || CAST(t.streamId AS INTEGER) || ',"correlation":' || ${this.correlation(pid)} ${bytes} || '}}' END AS event FROM ${table} t ${join} ORDER BY t.start`;
  }

  private stringJoin(column: string): string {
    const strings = this.report.hasIds("StringIds", "value") ? "StringIds" : "(SELECT NULL AS id, NULL AS value)";
    return `LEFT JOIN ${strings} s ON s.id = t.${column}`;
  }

  private nameColumn(table: string): string {
    return ["demangledName", "shortName", "mangledName"].find((column) => this.report.has(table, column)) ?? "rowid";
  }

  private deviceName(kind: string, table: string): string {
    if (kind === "KERNEL") return "s.value";
    if (kind === "GRAPH_TRACE") return "'CUDA graph ' || coalesce(t.graphId, '')";
    if (kind === "MEMSET") return "'Memset (Device)'";
    const copy = this.report.has(table, "copyKind") ? choose("t.copyKind", copyKinds, "Unknown") : "'Unknown'";
    const memory = (column: string): string => choose(`t.${column}`, memoryKinds, "Unknown");
    const between = this.report.has(table, "srcKind", "dstKind")
      ? ` || ' (' || ${memory("srcKind")} || ' -> ' || ${memory("dstKind")} || ')'`
      : "";
    return `'Memcpy ' || ${copy}${between}`;
  }

  /** Calls of the runtime and the driver; their names end in the version of the interface. */
  callQuery(): string | null {
    const table = "CUPTI_ACTIVITY_KIND_RUNTIME";
    if (!this.report.has(table, "start", "end", "globalTid", "correlationId", "nameId")) return null;
    const bare = "rtrim(s.value, '0123456789')";
    const name = `CASE WHEN substr(${bare}, -2) = '_v' THEN substr(${bare}, 1, length(${bare}) - 2) ELSE s.value END`;
    return `SELECT CASE WHEN t.end >= t.start THEN '{"ph":"X","cat":"cuda_runtime","name":' || ${quoted(name)} || ',"pid":' || ${pidOf("t.globalTid")} || ',"tid":' || (t.globalTid & 0xFFFFFF) || ${timeColumns} || ',"args":{"correlation":' || ${this.correlation(pidOf("t.globalTid"))} || '}}' END AS event FROM ${table} t ${this.stringJoin("nameId")} ORDER BY t.start`;
  }

  /** Ranges of the program's own marks, with their names apart: those that number steps become steps. */
  rangeQuery(): string | null {
    if (!this.report.has("NVTX_EVENTS", "start", "end", "text", "globalTid", "eventType")) return null;
    const hasId = this.report.has("NVTX_EVENTS", "textId");
    const named = `substr(${hasId ? "coalesce(t.text, s.value)" : "t.text"}, 1, ${longestName})`;
    const join = hasId ? this.stringJoin("textId") : "";
    return `SELECT CAST(${named} AS TEXT) AS name, '"pid":' || ${pidOf("t.globalTid")} || ',"tid":' || (t.globalTid & 0xFFFFFF) || ${timeColumns} AS event FROM NVTX_EVENTS t ${join} WHERE t.end >= t.start AND t.eventType IN (${nvtxRanges}) ORDER BY t.start`;
  }

  deviceNames(): string[] {
    const names = new Map<number, string>();
    if (this.report.has("TARGET_INFO_GPU", "id", "name"))
      for (const gpu of this.report.rows("SELECT id, name FROM TARGET_INFO_GPU LIMIT 1024"))
        names.set(Number(gpu["id"]), String(gpu["name"]));
    return this.places.map(({ device }) => names.get(device) ?? [...names.values()][0] ?? "unknown");
  }

  baseNanoseconds(): string | null {
    const clock = "TARGET_INFO_SESSION_START_TIME";
    if (!this.report.has(clock, "utcEpochNs")) return null;
    const ns = String(this.report.rows(`SELECT CAST(utcEpochNs AS TEXT) AS ns FROM ${clock} LIMIT 1`)[0]?.["ns"]);
    return /^\d{1,19}$/.test(ns) ? ns : null;
  }
}
