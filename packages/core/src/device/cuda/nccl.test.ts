// The group over NCCL against a fake of it: which calls a collective becomes, how communicators are made, and what goes
// through the host instead.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bareCollective, WeftError } from "../../graph/index.js";
import type { ProcessGroup } from "../contract.js";
import { type CollectiveAttrs, GroupError, movedBytes } from "../group/index.js";
import type { CudaBuffer } from "./context.js";
import { CudaDevice } from "./index.js";
import { contiguous, type NcclGroup, ncclGroup } from "./nccl.js";
import { gpuId, joinNccl } from "./nccl-join.js";
import { FakeCuda } from "./testkit.js";

/** The host's side of rank 1 of 2: rank 0's id arrives from it. */
class Host implements ProcessGroup {
  readonly kind = "shm";
  readonly native = null;
  readonly log: string[] = [];
  constructor(
    readonly rank: number,
    readonly size: number,
  ) {}
  failure(): WeftError {
    return new WeftError("failed");
  }
  collective(attrs: CollectiveAttrs, input: Uint8Array, output: Uint8Array): void {
    this.log.push(`${attrs.kind} ${attrs.groups[0].join(",")}`);
    if (attrs.shape[0] === 256) output.fill(9, 0, 128);
    else output.set(input.subarray(0, output.length));
  }
  barrier(): void {
    this.log.push("barrier");
  }
  close(): void {
    this.log.push("close");
  }
}

const attrs = (given: Partial<CollectiveAttrs>): CollectiveAttrs => ({
  ...bareCollective,
  ...{ kind: "allReduce", groups: [[0, 1]], rank: 1, shape: [6], dtype: "float32" },
  ...given,
});

function onRank1(body: (group: NcclGroup, fake: FakeCuda, host: Host, from: number, to: number) => void): void {
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    const host = new Host(1, 2);
    const group = ncclGroup(device, host)!;
    const [from, to] = [1, 2].map(() => (device.allocate(4096) as CudaBuffer).address);
    fake.sequence();
    body(group, fake, host, from, to);
    device.close();
  });
}

test("GPUs with equal bus ids on two machines are two, and those of containers of one machine are one", () =>
  new FakeCuda().within(() => {
    const device = new CudaDevice(0);
    const { busId } = device.context;
    const joined = (other: Buffer): string => {
      const host = new Host(0, 2);
      host.collective = (_, input, output) => {
        output.set(input, 0);
        output.set(other, input.length);
      };
      return joinNccl(device, host).kind;
    };
    assert.equal(joined(gpuId(busId, "another machine")), "nccl");
    assert.equal(joined(gpuId("0000:99:00.0")), "nccl");
    assert.equal(joined(gpuId(busId)), "shm");
    device.close();
  }));

test("boxes without gaps", () => {
  assert.deepEqual(contiguous({ start: [2, 0], size: [3, 4] }, [8, 4]), { start: 8, length: 12 });
  assert.deepEqual(contiguous({ start: [2, 1], size: [1, 2] }, [8, 4]), { start: 9, length: 2 });
  assert.equal(contiguous({ start: [0, 0], size: [2, 2] }, [8, 4]), null);
  assert.deepEqual(contiguous({ start: [0, 1, 0], size: [1, 2, 5] }, [1, 4, 5]), { start: 5, length: 10 });
  assert.deepEqual(contiguous({ start: [3, 1], size: [0, 2] }, [8, 4]), { start: 13, length: 0 });
});

test("an all-reduce is one call; the first rank creates the id, once per list of ranks", () =>
  onRank1((group, fake, host, from, to) => {
    assert.equal(group.onDevice(attrs({}), [6], from, to), true);
    assert.deepEqual(host.log, ["allGather 0,1"]);
    const init = fake.calls.find(({ name }) => name === "ncclCommInitRank")!;
    assert.deepEqual([init.args[1], init.args[3]], [2, 1]);
    assert.ok((init.args[2] as { bytes: Uint8Array }).bytes.every((b) => b === 9));
    const reduce = fake.calls.find(({ name }) => name === "ncclAllReduce")!;
    assert.deepEqual(reduce.args.slice(0, 5), [from, to, 6, 7, 0]);
    fake.sequence();
    group.onDevice(attrs({ fn: "max", dtype: "bfloat16" }), [6], from, to);
    group.onDevice(attrs({ dtype: "complex64" }), [6], from, to);
    const again = fake.calls.filter(({ name }) => name === "ncclAllReduce");
    assert.deepEqual(
      again.map(({ args }) => args.slice(2, 5)),
      [
        [6, 9, 2],
        [12, 7, 0],
      ],
    );
    assert.deepEqual(host.log, ["allGather 0,1"], "no second id");
    group.onDevice(attrs({ groups: [[1]] }), [6], from, to);
    assert.equal(fake.calls.filter(({ name }) => name === "ncclCommInitRank").length, 1);
  }));

test("gathers are sends and receives in one group, uneven and empty parts included", () =>
  onRank1((group, fake, _, from, to) => {
    const gather = attrs({ kind: "allGather", sizes: [3, 1], shape: [4, 5] });
    assert.equal(group.onDevice(gather, [1, 5], from, to), true);
    const moves = fake.calls.filter(({ name }) => /ncclGroup|ncclSend|ncclRecv|DtoD/.test(name));
    assert.deepEqual(
      moves.map(({ name }) => name),
      ["ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd", "cuMemcpyDtoDAsync_v2"],
    );
    assert.deepEqual(moves[1].args.slice(0, 4), [from, 5, 7, 0]);
    assert.deepEqual(moves[2].args.slice(0, 4), [to, 15, 7, 0]);
    assert.deepEqual(moves[4].args.slice(0, 3), [to + 60, from, 20], "its own part is a copy");
    fake.sequence();
    group.onDevice(attrs({ kind: "allGather", sizes: [4, 0], shape: [4, 5] }), [0, 5], from, to);
    assert.deepEqual(fake.sequence(), ["ncclGroupStart", "ncclRecv", "ncclGroupEnd"]);
  }));

test("an even reduce-scatter is one call; gaps, uneven parts and other reductions go through the host", () =>
  onRank1((group, fake, _, from, to) => {
    const scatter = attrs({ kind: "reduceScatter", sizes: [3, 3], shape: [3, 2] });
    assert.equal(group.onDevice(scatter, [6, 2], from, to), true);
    assert.ok(fake.sequence().includes("ncclReduceScatter"));
    for (const [what, operand] of [
      [attrs({ kind: "reduceScatter", sizes: [4, 2], shape: [2, 2] }), [6, 2]],
      [attrs({ kind: "allGather", axis: 1, sizes: [2, 3], shape: [4, 5] }), [4, 3]],
      [attrs({ kind: "exchange", shape: [4] }), [4]],
      [attrs({ fn: "prod", dtype: "complex64" }), [6]],
    ] as const)
      assert.equal(group.onDevice(what, operand, from, to), false);
    assert.deepEqual(fake.sequence(), [], "nothing was started");
    assert.deepEqual([group.direct, group.staged], [1, 4]);
  }));

test("bytes from other GPUs are counted; what goes through the host is counted by the host", () =>
  onRank1((group, _, __, from, to) => {
    const counted = (given: Partial<CollectiveAttrs>, operand: number[]): number => {
      const before = movedBytes();
      group.onDevice(attrs(given), operand, from, to);
      return movedBytes() - before;
    };
    // Half of six numbers there and half back.
    assert.equal(counted({}, [6]), 24);
    assert.equal(counted({ kind: "allGather", sizes: [3, 1], shape: [4, 5] }, [1, 5]), 3 * 5 * 4);
    assert.equal(counted({ kind: "reduceScatter", sizes: [3, 3], shape: [3, 2] }, [6, 2]), 24);
    assert.equal(counted({ groups: [[1]] }, [6]), 0);
    assert.equal(counted({ kind: "exchange", shape: [4] }, [4]), 0);
  }));

test("a failure says what it means; closing gives the communicators back", () =>
  onRank1((group, fake, host, from, to) => {
    fake.fail("ncclAllReduce", 6);
    assert.throws(
      () => group.onDevice(attrs({}), [6], from, to),
      /ncclAllReduce failed with error 6 \(another process is gone/,
    );
    assert.throws(
      () => group.onDevice(attrs({}), [6], from, to),
      (error: unknown) => error instanceof GroupError && error.code === "peer-dead",
    );
    fake.heal();
    fake.sequence();
    group.barrier();
    group.close();
    assert.deepEqual(fake.sequence(), ["cuStreamSynchronize", "ncclCommDestroy"]);
    assert.deepEqual(host.log.slice(-2), ["barrier", "close"]);
  }));
