// A contest: Weft and its peers compute the same row on the same cores and take turns in rounds. Answers are checked
// before a time counts, and rounds that other processes disturbed are repeated.
import { median } from "@weft/formats/stats";
import { spreadOf, waitForIdleCores, withForeignLoad } from "../harness/index.js";
import type { Contestant } from "./contestant.js";
import type { Context } from "./context.js";
import type { ContestantTimes, ContestRecord, PublishedFigures, RoundSamples, RowResult, TimeRatio } from "./record.js";

/** A round is repeated when other processes took more than this share of the cores. */
export const foreignLimit = 0.08;

/** Answers by contestant. */
export type Answers = Record<string, number[]>;

export interface ContestRow {
  id: string;
  title: string;
  /** Peer -> required ratio (its time divided by Weft's); null where the ratio is only reported. */
  peers?: Record<string, number | null>;
  /** Only the fastest of the peers with a requirement has to be met. */
  fastestPeer?: boolean;
  /** What is wrong with the answers, or null. */
  check?(answers: Answers): string | null;
  /** What a contestant calls the row, where that is not its id. */
  names?: Record<string, string>;
  limitMs?: number;
  flops?: number;
  bytes?: number;
  published?: PublishedFigures;
}

/** Which process answers for a contestant, what it is called in tables, and the suffix of its row names. */
export interface Seat {
  process: string;
  title: string;
  suffix?: string;
}

interface ContestParts {
  seats: Record<string, Seat>;
  /** Starts a process when it is first needed. */
  start: Record<string, () => Contestant>;
  /** Process -> why it cannot take part. */
  absent: Record<string, string>;
}

interface Entry {
  name: string;
  contestant: Contestant;
  row: string;
  check: number[];
  info: Record<string, unknown>;
  rounds: RoundSamples[];
}

export class Contest {
  readonly #processes = new Map<string, Promise<Contestant>>();
  /** What each process reports about itself. */
  readonly versions: Record<string, Record<string, unknown>> = {};

  constructor(
    readonly context: Context,
    readonly parts: ContestParts,
  ) {}

  #process(name: string): Promise<Contestant> {
    const start = async (): Promise<Contestant> => {
      const started = this.parts.start[name]();
      this.versions[name] = await started.versions();
      return started;
    };
    const found = this.#processes.get(name) ?? start();
    this.#processes.set(name, found);
    return found;
  }

  /** One round of one contestant, repeated while others disturb it and patience lasts. Load is not watched for GPUs. */
  async #round(entry: Entry, id: string): Promise<RoundSamples> {
    const { cores, device } = this.context;
    const measure = (): Promise<number[]> => entry.contestant.time(entry.row, this.context.number("seconds"), 3);
    if (device !== "cpu") return { samples: await measure(), foreign: 0 };
    const end = performance.now() + this.context.number("patience") * 1e3;
    for (;;) {
      await waitForIdleCores(cores, (end - performance.now()) / 1e3, foreignLimit);
      const { result: samples, foreign } = await withForeignLoad(cores, entry.contestant.pid, measure);
      if (foreign <= foreignLimit || performance.now() > end) return { samples, foreign };
      this.context.log(
        `${id} ${entry.name}: other processes took ${(foreign * 100).toFixed(0)}% of the cores; repeating`,
      );
    }
  }

  async run(row: ContestRow): Promise<RowResult> {
    const entries: Entry[] = [];
    const problems: Record<string, string> = {};
    for (const name of ["weft", ...(this.context.peers ? Object.keys(row.peers ?? {}) : [])]) {
      const seat = this.parts.seats[name];
      if (this.parts.absent[seat.process] !== undefined) {
        problems[name] = this.parts.absent[seat.process];
        continue;
      }
      try {
        const contestant = await this.#process(seat.process);
        const own = row.names?.[name] ?? `${row.id}${seat.suffix ?? ""}`;
        entries.push({ name, contestant, row: own, rounds: [], ...(await contestant.prepare(own)) });
      } catch (error) {
        problems[name] = (error as Error).message.split("\n").slice(0, 6).join("\n");
      }
    }
    const answers = Object.fromEntries(entries.map(({ name, check }) => [name, check]));
    const wrong = problems.weft ?? row.check?.(answers) ?? null;
    const rounds = wrong === null ? this.context.number("rounds") : 0;
    for (let round = 0; round < rounds; round++)
      for (const entry of round % 2 === 0 ? entries : [...entries].reverse()) {
        if (problems[entry.name] !== undefined) continue;
        try {
          entry.rounds.push(await this.#round(entry, row.id));
        } catch (error) {
          problems[entry.name] = (error as Error).message.split("\n").slice(0, 6).join("\n");
        }
      }
    for (const entry of entries) await entry.contestant.release(entry.row).catch(() => {});
    const measured = entries.filter((entry) => entry.rounds.length > 0 && problems[entry.name] === undefined);
    const { flops, bytes, published } = row;
    return {
      id: row.id,
      title: row.title,
      wrong: wrong ?? problems.weft ?? null,
      problems,
      ...resultsOf(row, measured, this.parts.seats),
      ...(flops !== undefined && { flops }),
      ...(bytes !== undefined && { bytes }),
      ...(published !== undefined && { published }),
    };
  }

  stop(): void {
    for (const contestant of this.#processes.values()) void contestant.then((c) => c.stop()).catch(() => {});
  }
}

/**
 * Medians and ratios. A ratio is taken within each round, so that noise meets both sides; their median counts. Where at
 * least three rounds were quiet for everybody, only those count.
 */
function resultsOf(
  row: ContestRow,
  entries: readonly Entry[],
  seats: Record<string, Seat>,
): Pick<RowResult, "times" | "ratios" | "limit"> {
  const rounds = Math.max(0, ...entries.map((entry) => entry.rounds.length));
  const quiet = Array.from({ length: rounds }, (_, i) => i).filter((i) =>
    entries.every((entry) => (entry.rounds[i]?.foreign ?? 0) <= foreignLimit),
  );
  const counted = (entry: Entry): RoundSamples[] =>
    entry.rounds.filter((_, i) => quiet.length < 3 || quiet.includes(i));
  const medians = (entry: Entry): number[] => counted(entry).map(({ samples }) => median(samples));
  const times: Record<string, ContestantTimes> = {};
  for (const entry of entries)
    times[entry.name] = {
      ms: median(medians(entry)),
      spread: spreadOf(counted(entry).flatMap(({ samples }) => samples)),
      info: entry.info,
      check: entry.check,
      rounds: entry.rounds,
    };
  const weft = entries.find(({ name }) => name === "weft");
  const ratios: Record<string, TimeRatio> = {};
  for (const entry of weft === undefined ? [] : entries) {
    if (entry === weft) continue;
    const own = medians(weft!);
    const each = medians(entry).map((ms, i) => ms / own[i]);
    const [ratio, wanted] = [median(each), row.peers?.[entry.name] ?? null];
    const [min, max] = [Math.min(...each), Math.max(...each)];
    const met = wanted === null ? null : ratio >= wanted;
    ratios[entry.name] = { name: seats[entry.name].title, ratio, min, max, wanted, met };
  }
  if (row.fastestPeer) requireFastest(ratios, times);
  return {
    times,
    ratios,
    ...(row.limitMs !== undefined &&
      times.weft !== undefined && { limit: { ms: row.limitMs, met: times.weft.ms <= row.limitMs } }),
  };
}

/** Drops the requirement for all peers but the fastest. */
function requireFastest(ratios: Record<string, TimeRatio>, times: Record<string, ContestantTimes>): void {
  const judged = Object.keys(ratios).filter((name) => ratios[name].wanted !== null);
  const fastest = judged.sort((a, b) => times[a].ms - times[b].ms)[0];
  for (const name of judged) if (name !== fastest) Object.assign(ratios[name], { wanted: null, met: null });
}

/** Runs all rows and writes the record after each. */
export async function runContest(
  context: Context,
  name: string,
  rows: readonly ContestRow[],
  parts: ContestParts,
): Promise<{ record: ContestRecord; save(): void; contest: Contest }> {
  const contest = new Contest(context, parts);
  const settings = { rounds: context.number("rounds"), seconds: context.number("seconds"), foreignLimit };
  const { record, save } = context.open(name, { rows: [] as RowResult[] }, { settings });
  Object.assign(record.absent, parts.absent);
  for (const row of context.choose(rows)) {
    context.log(row.title);
    record.rows.push(await contest.run(row));
    Object.assign(record.versions, contest.versions);
    save();
  }
  return { record, save, contest };
}
