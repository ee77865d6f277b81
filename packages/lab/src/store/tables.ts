// Runs and studies as flat tables with typed columns, which users query with SQL.
import type { Run, Study } from "../model/index.js";

/** SQL type of a column. */
export type ColumnType = "VARCHAR" | "DOUBLE" | "INTEGER" | "BOOLEAN";
export type Cell = string | number | boolean | null | undefined;

/** A table for the database. */
export interface Table {
  name: string;
  columns: readonly (readonly [name: string, type: ColumnType])[];
  rows: Iterable<readonly Cell[]>;
}

/** Columns as SQL writes them: "study VARCHAR, devices INTEGER". */
export const tableColumns = (...definitions: readonly string[]): Table["columns"] =>
  definitions.flatMap((text) => text.split(", ").map((column) => column.split(" ") as [string, ColumnType]));

/** The rows of every run, with the names of its study and the run in front. */
function* ofRuns(studies: readonly Study[], rows: (run: Run) => Iterable<readonly Cell[]>): Generator<Cell[]> {
  for (const study of studies)
    for (const run of study.runs) for (const row of rows(run)) yield [study.name, run.id, ...row];
}

function* sampleRows({ samples }: Run): Generator<Cell[]> {
  for (const s of samples) {
    const host: Cell[] = [s.host?.cpuPercent, s.host?.runQueue, s.host?.memoryUsedBytes];
    const devices = s.devices ?? [];
    if (devices.length === 0) yield [s.t, ...host, null, null, null, null];
    for (const d of devices) yield [s.t, ...host, d.index, d.utilizationPercent, d.memoryUsedBytes, d.powerWatts];
  }
}

function* factRows({ workload, ranks }: Run): Generator<Cell[]> {
  for (const [key, value] of Object.entries(workload)) yield [null, key, JSON.stringify(value)];
  for (const rank of ranks)
    for (const [key, value] of Object.entries(rank.facts)) yield [rank.rank, key, JSON.stringify(value)];
}

/** The tables of the measurements. Callers add tables of the conclusions. */
export function studyTables(studies: readonly Study[]): Table[] {
  return [
    {
      name: "runs",
      columns: tableColumns(
        "study VARCHAR, run VARCHAR, devices INTEGER, nodes INTEGER, repeat INTEGER, status VARCHAR",
        "exit_code INTEGER, seconds DOUBLE, started_at DOUBLE",
      ),
      rows: ofRuns(studies, (r) => [[r.devices, r.nodes, r.repeat, r.status, r.exitCode, r.seconds, r.startedAt]]),
    },
    {
      name: "epochs",
      columns: tableColumns(
        "study VARCHAR, run VARCHAR, rank INTEGER, epoch INTEGER, seconds DOUBLE, train_loss DOUBLE",
        "val_loss DOUBLE, val_accuracy DOUBLE, samples DOUBLE, steps INTEGER, line INTEGER",
      ),
      rows: ofRuns(studies, ({ epochs }) =>
        epochs.map((e) => [
          e.rank,
          e.epoch,
          e.seconds,
          e.trainLoss,
          e.valLoss,
          e.valAccuracy,
          e.samples,
          e.steps,
          e.line,
        ]),
      ),
    },
    {
      name: "steps",
      columns: tableColumns(
        "study VARCHAR, run VARCHAR, rank INTEGER, epoch INTEGER, step INTEGER, start_us DOUBLE",
        "duration_us DOUBLE, data_wait_us DOUBLE, comm_us DOUBLE, exposed_comm_us DOUBLE, samples DOUBLE",
        "loss DOUBLE, weight INTEGER",
      ),
      rows: ofRuns(studies, ({ steps }) =>
        steps.map((s) => [
          ...[s.rank, s.epoch, s.step, s.startUs, s.durationUs, s.dataWaitUs, s.commUs, s.exposedCommUs],
          ...[s.samples, s.loss, s.weight ?? 1],
        ]),
      ),
    },
    {
      name: "samples",
      columns: tableColumns(
        "study VARCHAR, run VARCHAR, t DOUBLE, cpu_percent DOUBLE, run_queue DOUBLE",
        "memory_used_bytes DOUBLE, device INTEGER, device_utilization_percent DOUBLE",
        "device_memory_used_bytes DOUBLE, power_watts DOUBLE",
      ),
      rows: ofRuns(studies, sampleRows),
    },
    {
      name: "facts",
      columns: tableColumns("study VARCHAR, run VARCHAR, rank INTEGER, key VARCHAR, value VARCHAR"),
      rows: ofRuns(studies, factRows),
    },
  ];
}
