// The benchmark over several workers: starts them (or uses those of a running dispatcher), and reads the plan of a row, the
// bytes that it moved and the time of communication from the tape of a few calls after the timed ones.
import { type Cluster, connect } from "@weft/cluster";
import type { Rates } from "@weft/core/internal/cost";
import type { DeviceBuffer } from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import { session, type TensorValue } from "@weft/core/internal/runtime";
import type { Tensor } from "@weft/core/internal/tensor";
import { medianOrNull } from "@weft/formats/stats";
import type { MeasureJob, Rig, RowFacts } from "./child.js";
import { expectRow, paysFrom, predictRow } from "./predict.js";
import { type RowSpec, rowProgram } from "./rows.js";

const bufferOf = (tensor: Tensor): DeviceBuffer => (tensor.node.value as TensorValue).buffer;

/** The fields of a tape instruction that are used here. */
interface Instruction {
  worker: number;
  step: number;
  kind: string;
  startUs: number;
  endUs: number;
  bytes: number;
}

async function open(job: MeasureJob): Promise<Cluster> {
  const token = job.tokenFile === undefined ? {} : { tokenFile: job.tokenFile };
  if (job.server !== undefined) {
    const cluster = await connect(job.server, token);
    if (cluster.workers.length < job.devices) {
      const found = cluster.workers.length;
      await cluster.close();
      throw new WeftError(
        `${job.devices} devices were asked for and ${job.server} has ${found} worker${found === 1 ? "" : "s"}; start more: weft worker`,
      );
    }
    return cluster;
  }
  return connect({
    devices: job.devices,
    device: job.device,
    cores: job.coresPerWorker ?? 1,
    pin: job.device === "cpu",
    calibrate: job.calibrate,
  });
}

export async function sharded(job: MeasureJob): Promise<Rig> {
  const cluster = await open(job);
  const { device } = cluster;
  const settle = async (tensors: readonly Tensor[]): Promise<void> => {
    await Promise.all(tensors.map((tensor) => device.computed(bufferOf(tensor))));
  };

  /** Records some calls: seconds and bytes of communication per call, of the slowest worker. */
  async function taped(row: RowSpec): Promise<{ communicate: number; compute: number; bytes: number }> {
    const records: Instruction[] = [];
    const second = await connect(cluster.address, { ...tokenOf(job, cluster), tape: true });
    try {
      second.device.connection.onTape = (more) => records.push(...(more as Instruction[]));
      const program = rowProgram(row);
      const inputs = program.create();
      session().realize([...program.weights, ...inputs].map((t) => t.node));
      await Promise.all([...program.weights, ...inputs].map((t) => second.device.computed(bufferOf(t))));
      // Arguments that are used again get their placement in the second call.
      for (let i = 0; i < 3; i++) await program.compute(inputs, program.weights).data();
      records.length = 0;
      for (let i = 0; i < 3; i++) {
        const c = program.compute(inputs, program.weights);
        session().realize([c.node]);
        await second.device.computed(bufferOf(c));
        c.dispose();
      }
    } finally {
      await second.close();
    }
    const workers = [...new Set(records.map((r) => r.worker))];
    const steps = [...new Set(records.map((r) => r.step))];
    const seconds = (worker: number, step: number, communicating: boolean): number =>
      records
        .filter((r) => r.worker === worker && r.step === step && (r.kind === "collective") === communicating)
        .reduce((sum, r) => sum + (r.endUs - r.startUs) / 1e6, 0);
    const slowest = (communicating: boolean): number =>
      medianOrNull(
        steps.map((step) => Math.max(0, ...workers.map((worker) => seconds(worker, step, communicating)))),
      ) ?? 0;
    const bytes = records.filter((r) => r.kind === "collective").reduce((sum, r) => sum + r.bytes, 0);
    return { communicate: slowest(true), compute: slowest(false), bytes: bytes / Math.max(1, steps.length) };
  }

  return {
    settle,
    facts: async (row, measured): Promise<RowFacts> => {
      const program = rowProgram(row);
      const inputs = program.create();
      const c = program.compute(inputs, program.weights);
      session().realize([c.node]);
      await settle([c]);
      const held = device.describe(bufferOf(c));
      const devicesUsed = held.filter(({ start, stop }) => start.every((from, i) => from < stop[i])).length;
      for (const tensor of [c, ...inputs, ...program.weights]) tensor.dispose();
      const { communicate, compute, bytes } = await taped(row);
      const whole = medianOrNull(measured.compute) ?? 0;
      return {
        devicesUsed,
        bytesMoved: bytes,
        communicateSeconds: communicate,
        computeSeconds: Math.min(compute, whole),
        // The rest of a call: messages to the workers and their answers.
        planSeconds: Math.max(0, whole - compute - communicate),
        plan: device.lastChoice ?? "",
        ...expected(row, job, device.rates),
        paysFrom: paysFrom(row, job.devices, device.rates),
        raw: null,
      };
    },
    close: () => cluster.close(),
  };
}

/** Predicted time of the row: from kernels on CPUs, whose kernels are counted, else from operations. */
function expected(row: RowSpec, job: MeasureJob, rates: Rates): Pick<RowFacts, "predictedSeconds" | "predictedBy"> {
  return job.device === "cpu"
    ? { predictedSeconds: expectRow(row, job.devices, rates), predictedBy: "kernels" }
    : { predictedSeconds: predictRow(row, job.devices, rates).seconds, predictedBy: "operations" };
}

const tokenOf = (job: MeasureJob, { local }: Cluster): { token?: string; tokenFile?: string } => {
  if (local !== null) return { token: local.token };
  return job.tokenFile === undefined ? {} : { tokenFile: job.tokenFile };
};
