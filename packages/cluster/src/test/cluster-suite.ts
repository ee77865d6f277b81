// The sharding suite on real workers: every case of the device suites, partitioned at random (seeded), run on a cluster
// of any device, and every shard compared with the reference rules. Independent of the test runner.

import { ReferenceDevice, useDevice } from "@weft/core";
import { bytesOf, type GraphFn, makeStorage, type Node, numel } from "@weft/core/internal/graph";
import { evaluate, type Value } from "@weft/core/internal/ops";
import {
  Mesh,
  type Partitioned,
  type Placement,
  partitionFunction,
  runLockstep,
  type Strategy,
  scatterValue,
} from "@weft/core/internal/shard";
import { simplify } from "@weft/core/internal/transform";
import { cases, type DType } from "@weft/testing/cases";
import { difference, toleranceOf } from "@weft/testing/compare";
import { differentiable, gradientFn } from "@weft/testing/derivatives";
import { functionOf, type Job, jobOf, list, upload } from "@weft/testing/jobs";
import { generator, randomPlacement, randomStrategy } from "@weft/testing/random-split";
import { results, trace } from "@weft/testing/traced";
import type { ClusterBuffer } from "../buffer.js";
import { type Cluster, type ClusterStatus, connect, watch } from "../index.js";
import type { LaunchOptions } from "../launch.js";

export interface SuiteOptions extends Pick<LaunchOptions, "devices" | "device" | "cores" | "env" | "timeout"> {
  /** Which share of the jobs, of how many: several clusters divide the suite. */
  part?: [number, number];
  /** Run only every n-th job. */
  every?: number;
  /** Jobs per program, to save compilation. */
  perProgram?: number;
}

export interface SuiteReport {
  devices: number;
  device: string;
  jobs: number;
  /** Jobs by kind whose shards were all correct. */
  passed: Record<SuiteJobKind, number>;
  failed: string[];
  /** Public functions with a job, and those with a failed one. */
  functions: number;
  failedFunctions: string[];
  /** Jobs with at least one really sharded tensor, of those that can be. */
  cuttable: number;
  cut: number;
  /** Shards fetched from single workers and compared, and how many were empty. */
  parts: number;
  emptyParts: number;
  collectives: Record<string, number>;
  /** Bytes exchanged by workers: expected by the lockstep interpreter, and counted on copy. */
  expectedBytes: number;
  movedBytes: number;
  /** Replicated shards whose bits differ between workers. */
  differingTwins: number;
  seconds: number;
}

/** Operands up to this size are sent to all group members at once (native/shm.h). */
const payloadBytes = 32768;

export type SuiteJobKind = "following" | "random" | "gradient";

/** A case as a closed function with its arguments and its partitioning. */
interface Work {
  name: string;
  of: string;
  kind: SuiteJobKind;
  fn: GraphFn;
  args: Value[];
  loose: number;
}

function workOf(job: Job, kind: SuiteJobKind, loose: number): Work {
  const traced = trace((...x) => list(job.fn(...x)), job.inputs.map(upload));
  const { name } = job;
  return { name: `${name}, ${kind}`, of: functionOf(name), kind, fn: simplify(traced.fn), args: traced.args, loose };
}

/** Every case twice, partitioned by its operands and at random, and its gradients if any. */
function suiteWork({ part = [0, 1], every = 1 }: Pick<SuiteOptions, "part" | "every">): Work[] {
  useDevice(new ReferenceDevice());
  const makers: (() => Work)[] = [];
  cases.forEach((item, index) => {
    const dtype: DType = item.dtypes[index % item.dtypes.length];
    for (const kind of ["following", "random"] as const)
      makers.push(() => workOf(jobOf(item, dtype), kind, 4 * (item.loose ?? 1)));
    const double = item.dtypes.find((d) => d === "float64" || d === "complex128");
    if (double === undefined || item.grad === false) return;
    const { grad } = item;
    makers.push(() => {
      const job = jobOf(item, double);
      const fn = gradientFn(job.fn, differentiable(job.inputs, grad));
      return workOf({ ...job, fn }, "gradient", 1000 * job.loose);
    });
  });
  return makers.filter((_, i) => i % every === 0 && Math.floor(i / every) % part[1] === part[0]).map((make) => make());
}

/** One worker's shard of a result, fetched from that worker. */
async function localPart(cluster: Cluster, it: ClusterBuffer, placement: Placement, rank: number): Promise<Value> {
  const shape = placement.localShape(rank, it.shape!);
  const dtype = it.dtype!;
  const data = makeStorage(dtype, numel(shape));
  const element = bytesOf(dtype);
  const link = cluster.device.connection.link(it.location!.members.get(rank)!);
  const before = link.fetchedBytes;
  const into = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  await link.fetch(it.id, { into, offset: 0, sizes: [numel(shape)], strides: [element], element });
  const held = link.fetchedBytes - before;
  if (held !== data.byteLength)
    throw new Error(`${it.location!.members.get(rank)} holds ${held} bytes, not the ${data.byteLength} of [${shape}]`);
  return { shape, dtype, data };
}

const bitsOf = ({ data }: Value): Buffer => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

class Suite {
  readonly report: SuiteReport;
  readonly #begin = performance.now();
  readonly #mesh: Mesh;
  #program = 0;

  constructor(
    readonly cluster: Cluster,
    options: SuiteOptions,
  ) {
    const { devices, device = "cpu" } = options;
    this.#mesh = Mesh.of({ d: devices });
    this.report = {
      devices,
      device,
      jobs: 0,
      passed: { following: 0, random: 0, gradient: 0 },
      failed: [],
      functions: 0,
      failedFunctions: [],
      cuttable: 0,
      cut: 0,
      parts: 0,
      emptyParts: 0,
      collectives: {},
      expectedBytes: 0,
      movedBytes: 0,
      differingTwins: 0,
      seconds: 0,
    };
  }

  /** Runs several jobs as one program; on failure, each separately to find the culprit. */
  async batch(work: readonly Work[]): Promise<void> {
    try {
      await this.#run(work);
    } catch (error) {
      if (work.length > 1) for (const one of work) await this.batch([one]);
      else this.report.failed.push(`${work[0].name}: ${(error as Error).message}`);
    }
  }

  #divide(work: readonly Work[]): { fn: GraphFn; parts: Partitioned; strategy: (node: Node) => Strategy | null } {
    const fn: GraphFn = { params: work.flatMap((w) => w.fn.params), outputs: work.flatMap((w) => w.fn.outputs) };
    const draw = generator(`${work.map((w) => w.name).join()} on ${this.#mesh.size}`);
    const params = fn.params.map((param) => randomPlacement(this.#mesh, param.shape, draw));
    const random = randomStrategy(this.#mesh, draw);
    // The cluster's device partitions the function again and must get the same values.
    const answers = new Map<Node, Strategy | null>();
    const strategy = (node: Node): Strategy | null => {
      if (!answers.has(node)) answers.set(node, work[0].kind === "following" ? null : random(node));
      return answers.get(node)!;
    };
    return { fn, strategy, parts: partitionFunction(fn, { mesh: this.#mesh, params, strategy }) };
  }

  async #run(work: readonly Work[]): Promise<void> {
    const { device } = this.cluster;
    const { fn, parts, strategy } = this.#divide(work);
    const args = work.flatMap((w) => w.args);
    const { mesh, params } = parts;
    device.executables.chooser = () => ({
      mesh,
      params: [...params],
      results: parts.results,
      why: `program ${++this.#program} of the suite`,
      seconds: 0,
      single: 0,
      strategy,
    });
    const before = device.counts.sharded;
    const inputs = args.map(({ data }) => {
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      const buffer = device.allocate(bytes.byteLength);
      device.upload(buffer, bytes);
      return buffer;
    });
    const outputs = device.compile(fn, {}).run(inputs) as ClusterBuffer[];
    try {
      if (device.counts.sharded !== before + 1) throw new Error("it did not run on several workers");
      const locals: Value[][] = [];
      for (const [i, it] of outputs.entries()) {
        if (it.failure !== null) throw new Error(it.failure);
        if (device.placement(it)?.equals(parts.results[i]) !== true)
          throw new Error(`result ${i} lies as ${device.placement(it)}, not as ${parts.results[i]}`);
        locals.push(await Promise.all(mesh.ranks.map((rank) => localPart(this.cluster, it, parts.results[i], rank))));
      }
      this.#judge(work, parts, locals);
      this.#account(args, parts);
    } finally {
      for (const buffer of [...inputs, ...outputs]) device.free(buffer);
    }
  }

  #judge(work: readonly Work[], parts: Partitioned, locals: readonly Value[][]): void {
    const { report } = this;
    let at = 0;
    let param = 0;
    for (const { name, kind, fn, args, loose } of work) {
      const problems: string[] = [];
      evaluate(fn, args).forEach((whole, k) => {
        const i = at + k;
        const placement = parts.results[i];
        const expected = results(scatterValue(whole, placement));
        const twins = new Map<string, Value>();
        results(locals[i]).forEach((actual, rank) => {
          const rtol = loose * toleranceOf(actual.dtype);
          const problem = difference(actual, expected[rank], { rtol });
          if (problem !== null) problems.push(`${name}, result ${k} ${placement}, worker ${rank}: ${problem}`);
          report.parts++;
          if (actual.data.length === 0) report.emptyParts++;
          const { start, stop } = placement.box(rank, whole.shape);
          const key = `${start}:${stop}`;
          const twin = twins.get(key);
          if (twin !== undefined && Buffer.compare(bitsOf(twin), bitsOf(locals[i][rank])) !== 0)
            report.differingTwins++;
          twins.set(key, locals[i][rank]);
        });
      });
      at += fn.outputs.length;
      // One-element tensors cannot be sharded.
      const shapes = [...fn.params, ...fn.outputs].map((node) => node.shape);
      if (shapes.some((shape) => numel(shape) > 1)) report.cuttable++;
      const places = [...parts.params.slice(param, param + fn.params.length), ...this.#innerPlaces(fn, parts)];
      if (places.some((placement) => !placement.isReplicated)) report.cut++;
      param += fn.params.length;
      report.jobs++;
      if (problems.length === 0) report.passed[kind]++;
      else report.failed.push(problems[0]);
    }
  }

  #innerPlaces(fn: GraphFn, parts: Partitioned): Placement[] {
    return fn.outputs.flatMap((node) => [...(parts.placements.get(node) ?? [])]);
  }

  /** The bytes that this program must have exchanged. */
  #account(args: readonly Value[], parts: Partitioned): void {
    const { report } = this;
    const perParam = args.map((value, i) => scatterValue(value, parts.params[i]));
    const perRank = parts.mesh.ranks.map((_, r) => perParam.map((locals) => locals[r]));
    const { traffic } = runLockstep(parts.functions, perRank, parts.mesh.ranks);
    const n = parts.mesh.size;
    for (const { kind, bytes } of traffic) {
      report.collectives[kind] = (report.collectives[kind] ?? 0) + 1;
      // Small reductions are sent to all members at once instead of in a ring.
      const small = kind === "allReduce" && bytes / (2 * (n - 1)) <= payloadBytes;
      report.expectedBytes += small ? (bytes * n) / 2 : bytes;
    }
  }

  async finish(work: readonly Work[]): Promise<SuiteReport> {
    const { report, cluster } = this;
    report.functions = new Set(work.map((w) => w.of)).size;
    report.failedFunctions = [...new Set(report.failed.map(functionOf))];
    report.movedBytes = await movedBytes(cluster, report.expectedBytes);
    report.seconds = (performance.now() - this.#begin) / 1e3;
    return report;
  }
}

/** Bytes received by all workers. They report once per second, so this waits for the expected amount. */
async function movedBytes(cluster: Cluster, expected: number): Promise<number> {
  let last = 0;
  const total = (status: ClusterStatus): number =>
    status.workers.reduce((n, { stats }) => n + (stats?.movedBytes ?? 0), 0);
  let stop = (): void => {};
  await new Promise<void>((resolve) => {
    const late = setTimeout(resolve, 5000);
    stop = watch(
      cluster.address,
      { token: cluster.local?.token },
      (status) => {
        last = total(status);
        if (last < expected) return;
        clearTimeout(late);
        resolve();
      },
      () => resolve(),
    );
  });
  stop();
  return last;
}

/** Starts workers, runs the suite or a share of it, and returns the report. */
export async function runClusterSuite(options: SuiteOptions): Promise<SuiteReport> {
  const work = suiteWork(options);
  const { perProgram = 16, devices, device, cores = 1, env, timeout } = options;
  // Calibration would add to the counted bytes.
  const cluster = await connect({ devices, device, cores, env: { WEFT_RATES: "assumed", ...env }, timeout });
  useDevice(new ReferenceDevice());
  try {
    const suite = new Suite(cluster, options);
    // Group members first exchange which GPU they use: a hash and whether there is one.
    if (suite.report.device.startsWith("cuda")) suite.report.expectedBytes += 33 * devices * (devices - 1);
    for (const kind of ["following", "random", "gradient"] as const) {
      const some = work.filter((w) => w.kind === kind);
      for (let at = 0; at < some.length; at += perProgram) await suite.batch(some.slice(at, at + perProgram));
    }
    return await suite.finish(work);
  } finally {
    await cluster.close();
  }
}
