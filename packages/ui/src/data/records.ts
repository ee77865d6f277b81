// Everything that the record files of one run say, read as they grow: curves, epochs, log, utilization. Memory is bounded
// whatever the files hold.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { parseRecord, type RecordOf, type RunLogRecord } from "@weft/formats";
import { plainText } from "@weft/formats/text";
import {
  type EpochPoint,
  type LogLine,
  type RankPartTimes,
  type SeriesField,
  type SeriesPart,
  seriesFields,
  type UtilizationHistory,
} from "../wire/index.js";
import { decodeLine, Tail } from "./files.js";
import { StepSeries } from "./series.js";

/** Buckets of the curves of rank 0, and of the other ranks, of which only the parts of a step are drawn. */
const mainBuckets = 1 << 16;
const otherBuckets = 1 << 11;
/** Ranks whose files are read; a table of more is not readable. */
const mostRanks = 64;
const mostEpochs = 20_000;
const mostLogLines = 1000;
const mostSamples = 4096;
/** Files above this size are first sampled, so that a picture is there at once. */
const largeFile = 16 << 20;
/** Steps over which the parts of a step are averaged. */
const recentSteps = 200;

const rankFile = /^rank(\d{1,7})\.jsonl$/;

/** The fields of a record's step, NaN where one is missing. */
function fieldsOf(record: RecordOf<"step">, into: Float64Array): void {
  for (let f = 0; f < seriesFields.length; f++) into[f] = record[seriesFields[f]] ?? Number.NaN;
}

interface RankReader {
  rank: number;
  tail: Tail;
  series: StepSeries;
  device?: string;
}

/** The record files of one run. */
export class RunRecords {
  readonly #ranks = new Map<number, RankReader>();
  readonly #shared: Tail;
  readonly #fields = new Float64Array(seriesFields.length);
  #epochs: EpochPoint[] = [];
  #log: LogLine[] = [];
  #samples: RecordOf<"sample">[] = [];
  #sampleStride = 1;
  #samplesSeen = 0;
  #preview: StepSeries | null = null;
  #reading: Promise<void> | null = null;
  /** Counts changes, so that listeners know whether to look. */
  version = 0;

  constructor(
    private readonly root: string,
    private readonly folder: string,
  ) {
    this.#shared = new Tail(root, join(folder, "records.jsonl"));
  }

  /** Reads what was appended. Calls at the same time share one pass. */
  update(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #read(): Promise<void> {
    this.#findRanks();
    await this.#shared.read(
      (lines) => this.#take(lines, null),
      () => this.#forget(),
    );
    const main = this.#ranks.get(0) ?? [...this.#ranks.values()][0];
    if (main !== undefined && main.series.last < 0 && (await main.tail.size()) > largeFile)
      await this.#sampleFile(main);
    for (const reader of this.#ranks.values())
      for (let more = true; more; )
        more = await reader.tail.read(
          (lines) => this.#take(lines, reader),
          () => {
            reader.series = new StepSeries(reader.rank === 0 ? mainBuckets : otherBuckets);
            if (reader === main) this.#forget();
          },
          8 << 20,
        );
    if (this.#preview !== null) {
      this.#preview = null;
      this.version++;
    }
  }

  async #sampleFile(reader: RankReader): Promise<void> {
    const preview = new StepSeries(1 << 15);
    for (const line of await reader.tail.sample(512, 1 << 13)) {
      const parsed = parseRecord(line);
      if (!parsed.ok || parsed.record.type !== "step") continue;
      fieldsOf(parsed.record, this.#fields);
      preview.add(parsed.record.step, parsed.record.t ?? Number.NaN, this.#fields);
    }
    this.#preview = preview;
    this.version++;
  }

  /** The main file started over: a new run in the same folder. */
  #forget(): void {
    this.#epochs = [];
    this.#log = [];
    this.#samples = [];
    this.#sampleStride = 1;
    this.#samplesSeen = 0;
    this.version++;
  }

  #findRanks(): void {
    let names: string[] = [];
    try {
      names = existsSync(this.folder) ? readdirSync(this.folder) : [];
    } catch {
      return;
    }
    const found = names
      .flatMap((name) => rankFile.exec(name)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
    for (const rank of found.slice(0, mostRanks))
      if (!this.#ranks.has(rank))
        this.#ranks.set(rank, {
          rank,
          tail: new Tail(this.root, join(this.folder, `rank${rank}.jsonl`)),
          series: new StepSeries(this.#ranks.size === 0 ? mainBuckets : otherBuckets),
        });
  }

  #take(lines: readonly string[], reader: RankReader | null): void {
    for (const line of lines) {
      const parsed = parseRecord(line);
      if (!parsed.ok) continue;
      const { record } = parsed;
      if (record.type === "step") {
        if (reader === null) continue;
        fieldsOf(record, this.#fields);
        reader.series.add(record.step, record.t ?? Number.NaN, this.#fields);
        continue;
      }
      // Texts may hold characters beyond latin1.
      const whole = parseRecord(decodeLine(line));
      if (whole.ok) this.#other(whole.record, reader);
    }
    if (lines.length > 0) this.version++;
  }

  #other(record: RunLogRecord, reader: RankReader | null): void {
    const isMain = reader === null || reader.rank === 0;
    if (record.type === "rank" && reader !== null && record.device !== undefined) reader.device = record.device;
    else if (record.type === "epoch" && isMain) this.#epoch(record);
    else if (record.type === "event") {
      const rank = isMain ? "" : `rank ${reader.rank}: `;
      this.#say(record.t, record.level ?? "info", `${rank}${record.message ?? record.name}`);
    } else if (record.type === "end") this.#end(record, reader);
    else if (record.type === "sample") this.#sample(record);
  }

  #epoch({ epoch, seconds, trainLoss, valLoss, valAccuracy, lastStep, t }: RecordOf<"epoch">): void {
    if (this.#epochs.length >= mostEpochs) return;
    this.#epochs.push({
      epoch,
      seconds,
      ...(trainLoss !== undefined && { trainLoss }),
      ...(valLoss !== undefined && { valLoss }),
      ...(valAccuracy !== undefined && { valAccuracy }),
      ...(lastStep !== undefined && { lastStep }),
      ...(t !== undefined && { t }),
    });
    const parts = [
      `epoch ${epoch}`,
      ...(trainLoss === undefined ? [] : [`train loss ${trainLoss.toFixed(4)}`]),
      ...(valLoss === undefined ? [] : [`validation loss ${valLoss.toFixed(4)}`]),
      ...(valAccuracy === undefined ? [] : [`accuracy ${valAccuracy.toFixed(4)}`]),
      `${seconds.toFixed(1)} s`,
    ];
    this.#say(t, "info", parts.join("  "));
  }

  #end({ t, status, message, rank }: RecordOf<"end">, reader: RankReader | null): void {
    if (reader !== null && reader.rank !== 0 && status === "ok") return;
    const who = reader === null || rank === undefined || rank === 0 ? "run" : `rank ${rank}`;
    const text = `${who} ended: ${status}${message === undefined ? "" : `: ${message}`}`;
    this.#say(t, status === "ok" ? "info" : status === "canceled" ? "warning" : "error", text);
  }

  #say(t: number | undefined, level: LogLine["level"], text: string): void {
    this.#log.push({ ...(t !== undefined && { t }), level, text: plainText(text.slice(0, 4000)) });
    if (this.#log.length > mostLogLines) this.#log.splice(0, this.#log.length - mostLogLines);
  }

  /** Every sample at first; every second one of a longer run, and so on. */
  #sample(record: RecordOf<"sample">): void {
    if (this.#samplesSeen++ % this.#sampleStride !== 0) return;
    this.#samples.push(record);
    if (this.#samples.length < mostSamples) return;
    this.#samples = this.#samples.filter((_, i) => i % 2 === 0);
    this.#sampleStride *= 2;
  }

  get epochs(): readonly EpochPoint[] {
    return this.#epochs;
  }

  get log(): readonly LogLine[] {
    return this.#log;
  }

  get #main(): RankReader | undefined {
    return this.#ranks.get(0) ?? [...this.#ranks.values()][0];
  }

  /** First step of the newest bucket, which later steps may still change. */
  get last(): number {
    return this.#main?.series.last ?? -1;
  }

  get generation(): number {
    return this.#main?.tail.generation ?? 0;
  }

  /** Curves of the first rank. */
  part(fields: readonly SeriesField[], buckets: number, from?: number, to?: number): SeriesPart {
    const main = this.#main;
    const series = this.#preview ?? main?.series;
    const body = series?.part(fields, buckets, from, to) ?? { width: 1, step: [], t: [], values: {} };
    return { generation: this.generation, ...body, read: this.#preview !== null ? (main?.tail.share ?? 0) * 0.99 : 1 };
  }

  /** Mean parts of the last steps of each rank. */
  parts(): RankPartTimes[] {
    return [...this.#ranks.values()].flatMap(({ rank, series, device }) => {
      const mean = (field: SeriesField): number => {
        const { sum, count } = series.recent(field, recentSteps);
        return count === 0 ? 0 : sum / count;
      };
      const steps = series.recent("durationUs", recentSteps).count;
      if (steps === 0) return [];
      const [dataWaitUs, exposedCommUs] = [mean("dataWaitUs"), mean("exposedCommUs")];
      // Not every writer splits a step; what is not waiting is computation.
      const computeUs = Math.max(0, mean("durationUs") - dataWaitUs - exposedCommUs);
      return [{ rank, steps, dataWaitUs, computeUs, exposedCommUs, ...(device !== undefined && { device }) }];
    });
  }

  /** Recorded utilization of host and devices. */
  utilization(): UtilizationHistory {
    const samples = this.#samples;
    const indices = [...new Set(samples.flatMap((sample) => sample.devices?.map((device) => device.index) ?? []))]
      .sort((a, b) => a - b)
      .slice(0, 16);
    return {
      t: samples.map(({ t }) => t),
      cpuPercent: samples.map(({ host }) => host?.cpuPercent ?? null),
      othersPercent: samples.map(({ host }) => host?.foreignCpuPercent ?? null),
      memoryBytes: samples.map(({ host }) => host?.memoryUsedBytes ?? null),
      devices: indices.map((index) => {
        const of = samples.map((sample) => sample.devices?.find((device) => device.index === index));
        return {
          index,
          utilizationPercent: of.map((device) => device?.utilizationPercent ?? null),
          memoryBytes: of.map((device) => device?.memoryUsedBytes ?? null),
          powerWatts: of.map((device) => device?.powerWatts ?? null),
        };
      }),
    };
  }
}
