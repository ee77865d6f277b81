// Databases of rocprofv3 (rocpd): kernel dispatches, copies, calls of HIP and HSA, and roctx ranges. The tables of a process end
// in its id; a database may contain several processes. Every pair of process and GPU becomes a device of its own.
import {
  copyArguments,
  longestName,
  mostPlaces,
  quoted,
  type SqliteReport,
  type SqliteTrace,
  timeColumns,
} from "./sqlite.js";

const mostProcesses = 256;
/** Ids of calls count per process. */
const idsPerProcess = 2 ** 32;

/** The queries of a database; null where it has no tables of rocprofv3. */
export function rocpdTrace(report: SqliteReport): SqliteTrace | null {
  const suffixes = new Set<string>();
  for (const table of report.tables) {
    const suffix = /^rocpd_(?:kernel_dispatch|memory_copy|region)(\w*)$/.exec(table)?.[1];
    if (suffix !== undefined) suffixes.add(suffix);
  }
  if (suffixes.size === 0) return null;
  const trace: SqliteTrace = { source: "rocpd", deviceNames: [], baseNanoseconds: null, events: [], ranges: [] };
  [...suffixes]
    .sort()
    .slice(0, mostProcesses)
    .forEach((suffix, i) => {
      new RocpdProcess(report, suffix, i, trace.deviceNames.length).addTo(trace);
    });
  return trace;
}

class RocpdProcess {
  /** GPUs with work, by their ids in the database. */
  private readonly agents: number[];

  constructor(
    private readonly report: SqliteReport,
    private readonly suffix: string,
    private readonly index: number,
    private readonly firstDevice: number,
  ) {
    this.agents = this.findAgents();
  }

  addTo(trace: SqliteTrace): void {
    trace.deviceNames.push(...this.deviceNames());
    for (const query of [this.kernelQuery(), this.copyQuery(), this.callQuery()])
      if (query !== null) trace.events.push(query);
    const ranges = this.rangeQuery();
    if (ranges !== null) trace.ranges.push(ranges);
    const isKnown = { kernel_dispatch: this.hasKernels, memory_copy: this.hasCopies, region: this.hasRegions };
    for (const [table, known] of Object.entries(isKnown))
      if (!known && this.has(table))
        (trace.problems ??= []).push(
          `rocpd_${table}${this.suffix} or what it refers to has other columns than those of rocprofv3 (schema 3): its rows were left out`,
        );
  }

  private has(table: string, ...columns: string[]): boolean {
    return this.report.has(`rocpd_${table}${this.suffix}`, ...columns);
  }

  private hasIds(table: string, ...columns: string[]): boolean {
    return this.report.hasIds(`rocpd_${table}${this.suffix}`, ...columns);
  }

  private table(name: string): string {
    return `"rocpd_${name}${this.suffix}"`;
  }

  private get hasKernels(): boolean {
    return this.has("kernel_dispatch", "start", "end", "agent_id", "kernel_id", "stream_id", "queue_id");
  }

  private get hasCopies(): boolean {
    const columns = ["start", "end", "name_id", "dst_agent_id", "src_agent_id", "size", "stream_id"];
    return this.has("memory_copy", ...columns) && this.hasIds("info_agent", "type");
  }

  /** The GPU of a copy: where it goes to, or, for a copy to the host, where it comes from. */
  private get copyAgent(): string {
    const isGpu = `(SELECT 1 FROM ${this.table("info_agent")} a WHERE a.id = t.dst_agent_id AND a.type = 'GPU')`;
    return `CASE WHEN ${isGpu} THEN t.dst_agent_id ELSE t.src_agent_id END`;
  }

  private findAgents(): number[] {
    const sources = [
      ...(this.hasKernels ? [`SELECT DISTINCT agent_id AS agent FROM ${this.table("kernel_dispatch")}`] : []),
      ...(this.hasCopies ? [`SELECT DISTINCT ${this.copyAgent} AS agent FROM ${this.table("memory_copy")} t`] : []),
    ];
    if (sources.length === 0) return [];
    const rows = this.report.rows(
      `SELECT CAST(agent AS INTEGER) AS agent FROM (${sources.join(" UNION ")}) WHERE agent IS NOT NULL ORDER BY 1 LIMIT ${mostPlaces}`,
    );
    return rows.map(({ agent }) => Number(agent));
  }

  private deviceNames(): string[] {
    if (!this.has("info_agent", "id", "name", "product_name")) return this.agents.map(() => "unknown");
    const rows = this.report.rows(
      `SELECT id, coalesce(nullif(product_name, ''), name) AS name FROM ${this.table("info_agent")} LIMIT ${mostPlaces}`,
    );
    const names = new Map(rows.map(({ id, name }) => [Number(id), String(name ?? "unknown")]));
    return this.agents.map((agent) => names.get(agent) ?? "unknown");
  }

  private device(agent: string): string {
    const index = this.agents.map((id, i) => `WHEN ${id} THEN ${this.firstDevice + i}`);
    return index.length === 0 ? "0" : `CASE ${agent} ${index.join(" ")} ELSE ${this.firstDevice} END`;
  }

  /** The id that a call and the work that it started share. */
  private get correlation(): string {
    return `coalesce(',"correlation":' || (${this.index * idsPerProcess} + CAST(e.stack_id AS INTEGER)), '')`;
  }

  /** The event of a row: what belongs together, and marks. Tables without events have neither. */
  private eventJoin(table: string): string {
    const none = "(SELECT NULL AS id, NULL AS stack_id, NULL AS category_id, NULL AS extdata)";
    if (!this.has(table, "event_id") || !this.hasIds("event", "stack_id", "category_id", "extdata"))
      return `LEFT JOIN ${none} e ON 0`;
    return `LEFT JOIN ${this.table("event")} e ON e.id = t.event_id`;
  }

  private stringJoin(alias: string, id: string): string {
    const strings = this.hasIds("string", "string") ? this.table("string") : "(SELECT NULL AS id, NULL AS string)";
    return `LEFT JOIN ${strings} ${alias} ON ${alias}.id = ${id}`;
  }

  /** Without recorded streams all work is on stream 0, and the hardware queues tell what could run at the same time. */
  private streamColumn(): string {
    const table = this.table("kernel_dispatch");
    const [row] = this.report.rows(
      `SELECT (SELECT count(*) FROM (SELECT DISTINCT stream_id FROM ${table} LIMIT 2)) AS streams, (SELECT count(*) FROM (SELECT DISTINCT queue_id FROM ${table} LIMIT 2)) AS queues`,
    );
    return Number(row?.["streams"]) < 2 && Number(row?.["queues"]) > 1 ? "queue_id" : "stream_id";
  }

  private deviceEvent(category: string, name: string, agent: string, stream: string, more: string): string {
    const device = this.device(agent);
    const streamId = `CAST(coalesce(t.${stream}, 0) AS INTEGER)`;
    return `CASE WHEN t.end >= t.start THEN '{"ph":"X","cat":"${category}","name":' || ${quoted(name)} || ',"pid":' || ${device} || ',"tid":' || ${streamId} || ${timeColumns} || ',"args":{"device":' || ${device} || ',"stream":' || ${streamId} || ${this.correlation} ${more} || '}}' END AS event`;
  }

  private kernelQuery(): string | null {
    if (!this.hasKernels) return null;
    const named = this.hasIds("info_kernel_symbol", "display_name", "kernel_name");
    const name = named ? "coalesce(nullif(k.display_name, ''), k.kernel_name)" : "'kernel ' || t.kernel_id";
    const join = named ? `LEFT JOIN ${this.table("info_kernel_symbol")} k ON k.id = t.kernel_id` : "";
    return `SELECT ${this.deviceEvent("kernel", name, "t.agent_id", this.streamColumn(), "")} FROM ${this.table("kernel_dispatch")} t ${join} ${this.eventJoin("kernel_dispatch")} ORDER BY t.start`;
  }

  private copyQuery(): string | null {
    if (!this.hasCopies) return null;
    const side = (column: string): string =>
      `CASE (SELECT a.type FROM ${this.table("info_agent")} a WHERE a.id = t.${column}) WHEN 'GPU' THEN 'D' ELSE 'H' END`;
    const name = `'Memcpy ' || ${side("src_agent_id")} || 'to' || ${side("dst_agent_id")}`;
    const bytes = `|| ${copyArguments("t.size")}`;
    return `SELECT ${this.deviceEvent("gpu_memcpy", name, `(${this.copyAgent})`, "stream_id", bytes)} FROM ${this.table("memory_copy")} t ${this.eventJoin("memory_copy")} ORDER BY t.start`;
  }

  private get hasRegions(): boolean {
    return this.has("region", "start", "end", "pid", "tid", "name_id");
  }

  /** Calls of HIP, HSA and RCCL; categories are those of the profiler ("HIP_RUNTIME_API_EXT"). */
  private callQuery(): string | null {
    if (!this.hasRegions) return null;
    return `SELECT '{"ph":"X","cat":"hip_runtime","name":' || ${quoted("s.string")} || ',"pid":' || CAST(t.pid AS INTEGER) || ',"tid":' || CAST(t.tid AS INTEGER) || ${timeColumns} || ',"args":{"call":1' || ${this.correlation} || '}}' AS event FROM ${this.table("region")} t ${this.stringJoin("s", "t.name_id")} ${this.eventJoin("region")} ${this.stringJoin("c", "e.category_id")} WHERE t.end >= t.start AND coalesce(c.string, '') NOT LIKE 'MARKER%' ORDER BY t.start`;
  }

  /** Ranges of roctx: the text of a mark is in the data of its event. */
  private rangeQuery(): string | null {
    if (!this.hasRegions) return null;
    const message = "json_extract(CASE WHEN json_valid(e.extdata) THEN e.extdata ELSE '{}' END, '$.message')";
    return `SELECT substr(CAST(coalesce(${message}, s.string) AS TEXT), 1, ${longestName}) AS name, '"pid":' || CAST(t.pid AS INTEGER) || ',"tid":' || CAST(t.tid AS INTEGER) || ${timeColumns} AS event FROM ${this.table("region")} t ${this.stringJoin("s", "t.name_id")} ${this.eventJoin("region")} ${this.stringJoin("c", "e.category_id")} WHERE t.end >= t.start AND c.string LIKE 'MARKER%' ORDER BY t.start`;
  }
}
