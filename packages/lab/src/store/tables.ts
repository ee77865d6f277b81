// Runs and studies as flat tables with typed columns, which users query with SQL.
import type { Study } from "../model/index.js";

/** SQL type of a column. */
export type ColumnType = "VARCHAR" | "DOUBLE" | "INTEGER" | "BOOLEAN";
export type Cell = string | number | boolean | null | undefined;

/** A table for the database. */
export interface Table {
  name: string;
  columns: readonly (readonly [name: string, type: ColumnType])[];
  rows: Iterable<readonly Cell[]>;
}

function* runRows(studies: readonly Study[]): Generator<Cell[]> {
  for (const study of studies)
    for (const run of study.runs)
      yield [
        study.name,
        run.id,
        run.devices,
        run.nodes,
        run.repeat,
        run.status,
        run.exitCode,
        run.seconds,
        run.startedAt,
      ];
}

function* epochRows(studies: readonly Study[]): Generator<Cell[]> {
  for (const study of studies)
    for (const run of study.runs)
      for (const e of run.epochs)
        yield [
          study.name,
          run.id,
          e.rank,
          e.epoch,
          e.seconds,
          e.trainLoss,
          e.valLoss,
          e.valAccuracy,
          e.samples,
          e.steps,
          e.line,
        ];
}

function* stepRows(studies: readonly Study[]): Generator<Cell[]> {
  for (const study of studies)
    for (const run of study.runs)
      for (const s of run.steps)
        yield [
          study.name,
          run.id,
          s.rank,
          s.epoch,
          s.step,
          s.startUs,
          s.durationUs,
          s.dataWaitUs,
          s.commUs,
          s.exposedCommUs,
          s.samples,
          s.loss,
          s.weight ?? 1,
        ];
}

function* sampleRows(studies: readonly Study[]): Generator<Cell[]> {
  for (const study of studies)
    for (const run of study.runs)
      for (const s of run.samples) {
        const host: Cell[] = [s.host?.cpuPercent, s.host?.runQueue, s.host?.memoryUsedBytes];
        const devices = s.devices ?? [];
        if (devices.length === 0) yield [study.name, run.id, s.t, ...host, null, null, null, null];
        for (const d of devices)
          yield [study.name, run.id, s.t, ...host, d.index, d.utilizationPercent, d.memoryUsedBytes, d.powerWatts];
      }
}

function* factRows(studies: readonly Study[]): Generator<Cell[]> {
  for (const study of studies)
    for (const run of study.runs) {
      for (const [key, value] of Object.entries(run.workload))
        yield [study.name, run.id, null, key, JSON.stringify(value)];
      for (const rank of run.ranks)
        for (const [key, value] of Object.entries(rank.facts))
          yield [study.name, run.id, rank.rank, key, JSON.stringify(value)];
    }
}

/** The tables of the measurements. Callers add tables of the conclusions. */
export function studyTables(studies: readonly Study[]): Table[] {
  return [
    {
      name: "runs",
      columns: [
        ["study", "VARCHAR"],
        ["run", "VARCHAR"],
        ["devices", "INTEGER"],
        ["nodes", "INTEGER"],
        ["repeat", "INTEGER"],
        ["status", "VARCHAR"],
        ["exit_code", "INTEGER"],
        ["seconds", "DOUBLE"],
        ["started_at", "DOUBLE"],
      ],
      rows: runRows(studies),
    },
    {
      name: "epochs",
      columns: [
        ["study", "VARCHAR"],
        ["run", "VARCHAR"],
        ["rank", "INTEGER"],
        ["epoch", "INTEGER"],
        ["seconds", "DOUBLE"],
        ["train_loss", "DOUBLE"],
        ["val_loss", "DOUBLE"],
        ["val_accuracy", "DOUBLE"],
        ["samples", "DOUBLE"],
        ["steps", "INTEGER"],
        ["line", "INTEGER"],
      ],
      rows: epochRows(studies),
    },
    {
      name: "steps",
      columns: [
        ["study", "VARCHAR"],
        ["run", "VARCHAR"],
        ["rank", "INTEGER"],
        ["epoch", "INTEGER"],
        ["step", "INTEGER"],
        ["start_us", "DOUBLE"],
        ["duration_us", "DOUBLE"],
        ["data_wait_us", "DOUBLE"],
        ["comm_us", "DOUBLE"],
        ["exposed_comm_us", "DOUBLE"],
        ["samples", "DOUBLE"],
        ["loss", "DOUBLE"],
        ["weight", "INTEGER"],
      ],
      rows: stepRows(studies),
    },
    {
      name: "samples",
      columns: [
        ["study", "VARCHAR"],
        ["run", "VARCHAR"],
        ["t", "DOUBLE"],
        ["cpu_percent", "DOUBLE"],
        ["run_queue", "DOUBLE"],
        ["memory_used_bytes", "DOUBLE"],
        ["device", "INTEGER"],
        ["device_utilization_percent", "DOUBLE"],
        ["device_memory_used_bytes", "DOUBLE"],
        ["power_watts", "DOUBLE"],
      ],
      rows: sampleRows(studies),
    },
    {
      name: "facts",
      columns: [
        ["study", "VARCHAR"],
        ["run", "VARCHAR"],
        ["rank", "INTEGER"],
        ["key", "VARCHAR"],
        ["value", "VARCHAR"],
      ],
      rows: factRows(studies),
    },
  ];
}
