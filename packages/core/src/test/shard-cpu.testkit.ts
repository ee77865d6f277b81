// The processes of shard-cpu.test.ts: each compiles its own part of a program for the CPU device, joins the group, runs, and
// reports its shards. Also the measurement of links, which needs several processes too.
import type { RankContext } from "../device/group/testkit.js";
import { CpuDevice, ShmGroup } from "../device/index.js";
import { bytesOf, type Node, numel, storageView } from "../graph/index.js";
import * as weft from "../index.js";
import { ReferenceDevice, useDevice } from "../index.js";
import type { Value } from "../ops/index.js";
import { allAgree, measureLinks, slowestRates } from "../runtime/index.js";
import { Mesh, type Partitioned, Placement, partitionFunction, type Strategy, scatterValue } from "../shard/index.js";
import { simplify } from "../transform/index.js";
import { loopGradient, mlpStep, type Program, transformerStep } from "./programs.js";
import { trace } from "./traced.js";

const size = { batch: 4, length: 3, width: 8, heads: 2, layers: 1, feedForward: 8, vocabulary: 7, classes: 3 };

function drawing(): Program {
  const key = weft.key(7);
  const traced = trace(
    (x) => [
      weft.randn([7, 5], { key }).mul(x),
      weft.rand([7, 5], { key }).cumsum(0),
      weft.dropoutMask([7, 5], 0.4, key),
    ],
    [weft.ones([7, 5])],
  );
  return { fn: simplify(traced.fn), args: traced.args, data: 1, weights: 0 };
}

/** Programs with uneven shards, and with devices without any. */
export const programs: Record<string, { make: () => Program; loose: number; splitDraws?: boolean }> = {
  "an MLP with 13 rows": { make: () => mlpStep(13, 6, 10, 3), loose: 20 },
  "an MLP with 2 rows": { make: () => mlpStep(2, 6, 10, 3), loose: 20 },
  "a transformer": { make: () => transformerStep(size), loose: 400 },
  "a loop": { make: () => loopGradient(2, 3, 4), loose: 40 },
  "random numbers": { make: drawing, loose: 4, splitDraws: true },
};

/** The same shards in every process. */
export function divide(name: string, devices: number): { program: Program; parts: Partitioned } {
  useDevice(new ReferenceDevice());
  const { make, splitDraws } = programs[name];
  const program = make();
  const mesh = Mesh.of({ d: devices });
  const first = program.fn.params.length - program.data;
  const params = program.fn.params.map(({ shape }, i) =>
    i < first ? Placement.replicated(mesh, shape.length) : Placement.split(mesh, shape, { 0: "d" }),
  );
  const strategy = (node: Node): Strategy | null =>
    splitDraws && node.op === "random" ? { split: { d: 1 }, carry: [] } : null;
  return { program, parts: partitionFunction(program.fn, { mesh, params, strategy }) };
}

const bytesOfValue = ({ data }: Value): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** This rank's shard of each result of each program, twice: the second run reuses memory. */
export function runSharded({ rank, size: devices, name }: RankContext): unknown {
  const all = Object.keys(programs).map((title) => ({ title, ...divide(title, devices) }));
  const device = new CpuDevice({ threads: 1 });
  const group = ShmGroup.join(name, rank, devices, { joinTimeout: 60 });
  device.group = group;
  const answers = all.map(({ title, program, parts }) => {
    const fn = parts.functions[rank];
    const executable = device.compile(fn, {});
    const inputs = program.args.map((value, i) => {
      const bytes = bytesOfValue(scatterValue(value, parts.params[i])[rank]);
      const buffer = device.allocate(bytes.byteLength);
      device.upload(buffer, bytes);
      return buffer;
    });
    let held: number[][] = [];
    for (let run = 0; run < 2; run++) {
      held = executable.run(inputs).map((buffer, i) => {
        const { shape, dtype } = fn.outputs[i];
        const bytes = new Uint8Array(numel(shape) * bytesOf(dtype));
        device.download(buffer, bytes);
        device.free(buffer);
        return Array.from(storageView(dtype, bytes.buffer) as Float32Array, Number);
      });
    }
    const collectives = executable.kernels.filter(({ kind }) => kind === "collective").length;
    return { title, held, collectives };
  });
  group.barrier();
  group.close();
  return answers;
}

/**
 * Links of the group alone and inside programs; and the rates that the ranks agree on where rank r is r + 1 times as
 * slow.
 */
export function links({ rank, size: devices, name }: RankContext): unknown {
  const device = new CpuDevice({ threads: 1 });
  const group = ShmGroup.join(name, rank, devices, { joinTimeout: 60 });
  const staged = measureLinks(group);
  device.group = group;
  const inPrograms = measureLinks(group, device);
  const times = [1, 2, 4].map((x) => x * (rank === 2 ? 10 : rank + 1) * 1e-6);
  const table = { sizes: [1], nn: times, tn: times, nt: times, ns: times };
  const slowest = slowestRates(group, { matmul: {}, products: { float32: table } });
  const agreed = [allAgree(group, true), allAgree(group, rank !== 1)];
  group.barrier();
  device.group = null;
  group.close();
  return { staged, inPrograms, slowest: slowest.products?.float32?.nn, agreed };
}
