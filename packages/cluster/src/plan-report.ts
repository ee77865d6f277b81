// What watchers see of plans: a client reports each function that it shards, and the dispatcher keeps the last reports with the
// number of calls. Everything is bounded, because clients are not trusted.
import { limits } from "@weft/core/internal/graph";
import type { Alternative, Partitioned, Placement } from "@weft/core/internal/shard";
import { z } from "zod";
import type { ClientEntry, WorkerEntry } from "./dispatcher-state.js";
import { printable } from "./printable.js";

const mostTensors = 8;
const mostCandidates = 32;
const mostMembers = 64;
/** Reports kept per client, and characters of one of them; a longer one is kept without its tensors and pairs. */
const mostPlans = 16;
const mostCharacters = 1 << 16;
/** Characters of all reports that watchers see, the most recent clients first: a message has its limits. */
const mostSeen = 4 << 20;
/** Workers for which watchers see what a client has queued. */
const mostQueues = 64;

const id = z.number().int().nonnegative();
const name = z.string().max(300).transform(printable);
const amount = z.number().nonnegative().finite();
const index = z.array(id).max(limits.rank);

/** Schema of one sharded function. */
export const planReport = z.object({
  t: z.literal("plan"),
  program: id,
  why: name,
  devices: id,
  /** What the planner compared; the first is its choice. */
  candidates: z
    .array(z.object({ name, devices: id, seconds: amount.nullable(), communicate: amount, bytes: amount }))
    .max(mostCandidates),
  tensors: z
    .array(
      z.object({
        role: name,
        shape: index,
        placement: name,
        parts: z.array(z.object({ worker: name, start: index, stop: index })).max(mostMembers),
      }),
    )
    .max(mostTensors),
  /** Bytes from one worker to another in one call. */
  pairs: z.array(z.tuple([name, name, amount])).max(mostMembers * mostMembers),
});
/** A sharded function, as its client reports it. */
type PlanReport = z.infer<typeof planReport>;

/** Schema of what a dispatcher tells watchers beyond its workers. */
export const watchedClients = z.object({
  users: z
    .array(z.object({ id, label: name, host: name, pid: id, tensors: id, queued: z.record(name, id) }))
    .max(4096)
    .optional(),
  plans: z
    .array(planReport.omit({ t: true }).extend({ client: id, calls: id }))
    .max(4096)
    .optional(),
});

const short = (text: string): string => text.slice(0, 200);

function placed(role: string, placement: Placement, shape: readonly number[], workerOf: (rank: number) => string) {
  return {
    role,
    shape: [...shape],
    placement: short(String(placement)),
    parts: placement.mesh.ranks.slice(0, mostMembers).map((rank) => {
      const { start, stop } = placement.box(rank, shape);
      return { worker: workerOf(rank), start: [...start], stop: [...stop] };
    }),
  };
}

/** Bytes between pairs of members in one call: what a member receives comes from the others of its group in equal parts. */
function pairsOf(moves: Partitioned["moves"], workerOf: (rank: number) => string): PlanReport["pairs"] {
  const pairs = new Map<string, [string, string, number]>();
  for (const { kind, axes, members, total, from } of moves) {
    if (kind === "slice" || kind === "zeros" || members < 2) continue;
    const groups = from.mesh.groups(axes).filter((group) => group.length > 1);
    const links = groups.reduce((sum, group) => sum + group.length * (group.length - 1), 0);
    for (const group of groups)
      for (const a of group)
        for (const b of group) {
          if (a === b) continue;
          const pair = pairs.get(`${a} ${b}`) ?? [workerOf(a), workerOf(b), 0];
          pair[2] += total / links;
          pairs.set(`${a} ${b}`, pair);
        }
  }
  return [...pairs.values()].slice(0, mostMembers * mostMembers);
}

/** The report of a function that was planned and partitioned. */
export function reportPlan(
  program: number,
  why: string,
  { params, results, moves }: Partitioned,
  shapes: { params: readonly (readonly number[])[]; results: readonly (readonly number[])[] },
  candidates: readonly Alternative[],
  workerOf: (rank: number) => string,
): PlanReport {
  const half = mostTensors / 2;
  const finite = (value: number): number => (Number.isFinite(value) ? Math.max(0, value) : 0);
  return {
    t: "plan",
    program,
    why: short(why),
    devices: params[0]?.mesh.size ?? results[0]?.mesh.size ?? 1,
    candidates: candidates.slice(0, mostCandidates).map(({ name, devices, mesh, seconds, communicate, bytes }) => ({
      // One split may be reached by several grids.
      name: short(mesh.axes.length > 1 ? `${name} (${mesh.axes.map((a) => `${a.name} ${a.size}`).join(" × ")})` : name),
      devices,
      seconds: Number.isFinite(seconds) ? seconds : null,
      communicate: finite(communicate),
      bytes: finite(bytes),
    })),
    tensors: [
      ...params.slice(0, half).map((placement, i) => placed(`argument ${i}`, placement, shapes.params[i], workerOf)),
      ...results.slice(0, half).map((placement, i) => placed(`result ${i}`, placement, shapes.results[i], workerOf)),
    ],
    pairs: pairsOf(moves, workerOf),
  };
}

interface KeptReport {
  report: PlanReport;
  calls: number;
  characters: number;
}

/** The reports of all clients, kept by the dispatcher. */
export class PlanBook {
  readonly #plans = new Map<number, Map<number, KeptReport>>();

  add(client: number, report: PlanReport): void {
    const own = this.#plans.get(client) ?? new Map<number, KeptReport>();
    // The client that reported last is the last one.
    this.#plans.delete(client);
    this.#plans.set(client, own);
    const characters = JSON.stringify(report).length;
    const kept = characters > mostCharacters ? { ...report, tensors: [], pairs: [] } : report;
    own.set(report.program, { report: kept, calls: 0, characters: Math.min(characters, mostCharacters) });
    for (const old of own.keys()) if (own.size > mostPlans) own.delete(old);
  }

  /** Counts a call of a program. */
  ran(client: number, program: number): void {
    const plan = this.#plans.get(client)?.get(program);
    if (plan !== undefined) plan.calls++;
  }

  left(client: number): void {
    this.#plans.delete(client);
  }

  #seenPlans() {
    let left = mostSeen;
    return [...this.#plans].reverse().flatMap(([client, own]) =>
      [...own.values()].flatMap(({ report: { t: _, ...report }, calls, characters }) => {
        left -= characters;
        return left < 0 ? [] : [{ ...report, client, calls }];
      }),
    );
  }

  /** What watchers see. */
  seen(workers: readonly WorkerEntry[], clients: readonly ClientEntry[]) {
    return {
      clients: clients.length,
      users: clients.map(userOf),
      plans: this.#seenPlans(),
      workers: workers.map(({ info, stats, suspended }) => ({
        // The rates are most of what is known about a worker, and nobody watches them.
        info: { ...info, key: "", rates: null },
        stats,
        state: suspended ? "hangs" : "ready",
      })),
    };
  }
}

const userOf = ({ id, hello: { label, process }, holders, instructions }: ClientEntry) => ({
  id,
  label: label ?? "",
  host: process.host,
  pid: process.pid,
  tensors: holders.size,
  queued: Object.fromEntries(
    [...instructions.backlogs]
      .filter(([, backlog]) => backlog.count > 0)
      .slice(0, mostQueues)
      .map(([worker, backlog]) => [worker, backlog.count]),
  ),
});
