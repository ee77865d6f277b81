// Keeps what open pages look at up to date: the list of runs, and the records of the runs that somebody watches. Nothing is
// read while no page is open.
import { readdirSync, readFileSync } from "node:fs";
import {
  findGates,
  findTimelines,
  holderOf,
  type RunPlace,
  RunRecords,
  type RunsFolder,
  readDetail,
  type TimelineFiles,
} from "../data/index.js";
import { Jobs } from "../jobs/index.js";
import {
  type GateView,
  type Overview,
  RequestError,
  type RunDetail,
  type RunRow,
  type SeriesPart,
  seriesFields,
} from "../wire/index.js";
import type { ClusterMonitor } from "./cluster.js";
import { MachineMonitor } from "./machine.js";
import type { EventStream } from "./reply.js";
import { Tickets } from "./tickets.js";

const scanMs = 1000;
const recordsMs = 250;
/** Runs whose records stay in memory. */
const mostOpen = 24;
/** Points sent at a time to a page that follows a run. */
const mostPoints = 2000;

interface Open {
  place: RunPlace;
  records: RunRecords;
  used: number;
}

/** What a page follows. */
interface Follower {
  stream: EventStream;
  run: string | null;
  /** Generation and step up to which points were sent. */
  at: { generation: number; step: number };
  version: number;
  detailAt: number;
  detail: string;
}

/** The live data of one server. */
export class Hub {
  readonly jobs = new Jobs();
  readonly tickets = new Tickets();
  readonly machine = new MachineMonitor(() => this.#ownProcesses());
  readonly #open = new Map<string, Open>();
  readonly #followers = new Set<Follower>();
  #overview: Overview | null = null;
  #sent = new Map<string, string>();
  #timers: NodeJS.Timeout[] = [];
  #running: { pid: number; id: string }[] = [];

  constructor(
    readonly folder: RunsFolder,
    /** The file of predictions and outcomes. */
    readonly ledger: string,
    /** Folder with specifications of gates. */
    readonly gates: string,
    /** The watched dispatcher, if one was named. */
    readonly cluster: ClusterMonitor | null,
  ) {}

  /** The tapes and traces now. */
  timelines(): TimelineFiles[] {
    this.overview();
    const { root, places } = this.folder;
    return root === null ? [] : findTimelines(root, places);
  }

  /** Builds the page of a timeline; returns its address. */
  async timelinePage(id: string): Promise<string> {
    const found = this.timelines().find(({ row }) => row.id === id);
    if (found === undefined) throw new RequestError(404, `there is no tape or trace "${id}" in ${this.folder.path}`);
    if (found.row.tooLarge) throw new RequestError(422, "more than 1 GiB of traces: weft trace --html shows them");
    return this.tickets.add(await this.jobs.run("timeline", { files: found.files, name: found.row.name }));
  }

  /** Specifications of gates: files, those that runs optimize, and examples. */
  gateFiles(): ReturnType<typeof findGates> {
    this.overview();
    return findGates(this.gates, this.folder.runs);
  }

  /** Computes a gate of a listed specification. */
  gate(
    id: string,
    task: { set: Record<string, number | number[]>; full: boolean; iterations: number },
  ): Promise<GateView> {
    const found = this.gateFiles().find(({ row }) => row.id === id);
    if (found === undefined) throw new RequestError(404, `there is no specification "${id}" in ${this.gates}`);
    return this.jobs.run("quantum", { text: found.text, ...task });
  }

  /** Folder of a listed study. */
  studyFolder(id: string): string {
    if (this.folder.studyFolder(id) === null) this.overview();
    const known = this.folder.studyFolder(id);
    if (known === null) throw new RequestError(404, `there is no study "${id}" in ${this.folder.path}`);
    return known;
  }

  /** The runs now. */
  overview(): Overview {
    this.#overview = this.folder.scan();
    this.#running = this.#overview.runs
      .filter((row) => row.state === "running")
      .flatMap(({ id }) => {
        const pid = holderOf(this.folder.place(id)!.folder);
        return pid === null ? [] : [{ pid, id }];
      });
    return this.#overview;
  }

  /** Processes of a single running run: they are what is measured. Of several, each is load for the other. */
  #ownProcesses(): number[] {
    if (this.#running.length !== 1) return [];
    const group = processGroup(this.#running[0].pid);
    if (group === null) return [];
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((pid) => processGroup(pid) === group);
  }

  #known(id: string): { place: RunPlace; row: RunRow } {
    if (this.#overview === null || this.folder.place(id) === null) this.overview();
    const [place, row] = [this.folder.place(id), this.folder.row(id)];
    if (place === null || row === null) throw new RequestError(404, `there is no run "${id}" in ${this.folder.path}`);
    return { place, row };
  }

  /** Where a run is. */
  place(id: string): RunPlace {
    return this.#known(id).place;
  }

  row(id: string): RunRow {
    return this.#known(id).row;
  }

  #records(id: string): RunRecords {
    const { place } = this.#known(id);
    let open = this.#open.get(id);
    if (open === undefined) {
      open = { place, records: new RunRecords(place.root, place.folder), used: 0 };
      this.#open.set(id, open);
      const idle = [...this.#open].sort((a, b) => a[1].used - b[1].used);
      for (const [old] of idle.slice(0, Math.max(0, this.#open.size - mostOpen)))
        if (old !== id) this.#open.delete(old);
    }
    open.used = Date.now();
    return open.records;
  }

  /** The records of a run, read as far as a short wait allows: the rest follows as events. */
  async records(id: string, waitMs = 200): Promise<RunRecords> {
    const records = this.#records(id);
    await Promise.race([records.update(), new Promise((resolve) => setTimeout(resolve, waitMs).unref())]);
    return records;
  }

  async detail(id: string): Promise<RunDetail> {
    const { place, row } = this.#known(id);
    const detail = await readDetail(place, row, await this.records(id));
    // What the run itself did not record, this server has seen while a page was open.
    if (detail.utilization.t.length === 0 && row.state === "running" && row.startedAt !== undefined)
      detail.utilization = this.machine.since(row.startedAt);
    return detail;
  }

  /** Adds a page. `after`: generation and step that it has already. */
  follow(stream: EventStream, run: string | null, after: Follower["at"], seesCluster: boolean): () => void {
    if (run !== null) this.#known(run);
    const stopCluster = seesCluster ? this.cluster?.listen((view) => stream.send("cluster", view)) : undefined;
    const follower: Follower = { stream, run, at: after, version: -1, detailAt: 0, detail: "" };
    this.#followers.add(follower);
    const stopMachine = this.machine.listen((now) => {
      const several = this.#running.map(({ id }) => id);
      const disturbance =
        now.disturbance ??
        (several.length > 1
          ? `${several.length} runs at once (${several.slice(0, 3).join(", ")}): each is load for the others`
          : null);
      stream.send("machine", { ...now, disturbance });
    });
    this.#start();
    return () => {
      stopMachine();
      stopCluster?.();
      this.#followers.delete(follower);
      if (this.#followers.size === 0) this.close();
    };
  }

  #start(): void {
    if (this.#timers.length > 0) return;
    this.#sent = new Map(this.overview().runs.map((row) => [row.id, JSON.stringify(row)]));
    this.#timers = [setInterval(() => this.#scan(), scanMs), setInterval(() => void this.#updateFollowed(), recordsMs)];
  }

  close(): void {
    for (const timer of this.#timers) clearInterval(timer);
    this.#timers = [];
    this.machine.close();
  }

  /** Ends the threads, too. */
  end(): void {
    this.close();
    this.cluster?.close();
    this.jobs.close();
  }

  /** Sends the rows that changed. */
  #scan(): void {
    const { runs, studies } = this.overview();
    const now = new Map(runs.map((row) => [row.id, JSON.stringify(row)]));
    const changed = runs.filter((row) => this.#sent.get(row.id) !== now.get(row.id));
    const removed = [...this.#sent.keys()].filter((id) => !now.has(id));
    this.#sent = now;
    if (changed.length === 0 && removed.length === 0) return;
    for (const { stream } of this.#followers) stream.send("runs", { changed, removed, studies });
  }

  async #updateFollowed(): Promise<void> {
    for (const follower of this.#followers) {
      if (follower.run === null || !follower.stream.isOpen) continue;
      try {
        const records = this.#records(follower.run);
        void records.update();
        await this.#sendChanges(follower, records);
      } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        follower.stream.send("gone", { error: error.message });
        follower.run = null;
      }
    }
  }

  async #sendChanges(follower: Follower, records: RunRecords): Promise<void> {
    if (records.version !== follower.version) {
      follower.version = records.version;
      this.#sendPoints(follower, records);
    }
    const now = Date.now();
    if (now - follower.detailAt < 1000) return;
    follower.detailAt = now;
    const detail = await this.detail(follower.run!);
    const text = JSON.stringify(detail);
    if (text === follower.detail) return;
    follower.detail = text;
    follower.stream.send("run", detail);
  }

  #sendPoints(follower: Follower, records: RunRecords): void {
    const { generation } = records;
    const restarted = generation !== follower.at.generation;
    const from = restarted ? 0 : Math.max(0, follower.at.step);
    const part: SeriesPart = records.part(seriesFields, mostPoints, from);
    if (part.step.length === 0 && !restarted) return;
    // A first picture is replaced as a whole when the file was read.
    const step = part.read < 1 ? -1 : records.last;
    if (follower.stream.send("points", part, `${generation}:${step}`)) follower.at = { generation, step };
  }
}

function processGroup(pid: number): number | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    return Number(text.slice(text.lastIndexOf(")") + 2).split(" ")[2]);
  } catch {
    return null;
  }
}
