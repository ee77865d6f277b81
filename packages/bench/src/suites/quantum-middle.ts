// Quantum systems of middle size: coupled three-level cavities with one state, values and gradients, batches, and diffusive
// trajectories, against dense JAX on the same device.
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import {
  averageGateInfidelity,
  basisState,
  cosinePulse,
  type DeviceParameters,
  Duffing,
  densityOf,
  destroy,
  diffusive,
  evolve,
  gate,
  type Hamiltonian,
  hamiltonian,
  type Jump,
  lindblad,
  numberOperator,
  QuantumDevice,
  sigmaMinus,
  sigmaX,
  sigmaZ,
} from "@weft/quantum";
import { type Answers, type ContestRow, runContest, type Seat } from "./contest.js";
import { LocalContestant, PeerProcess, type PreparedRow, serveContestant } from "./contestant.js";
import type { Context, Suite } from "./context.js";
import { entryPoint } from "./main-path.js";
import { startPeers } from "./peers.js";
import { printTable } from "./report/table.js";

const steps = 100;
const f64 = { dtype: "float64" } as const;
const seats: Record<string, Seat> = {
  weft: { process: "weft", title: "Weft" },
  jax: { process: "jax", title: "JAX, dense matrices, scan" },
};

/** M coupled three-level cavities, the first one driven, each with one decay channel. */
function cavities(count: number): { hamiltonian: Omit<Hamiltonian, "amplitudes">; jumps: Jump[]; start: Tensor } {
  const [a, n] = [destroy(3), numberOperator(3)];
  const anharmonic = n.mul(n).sub(n).scale(-0.1);
  const hop = a.kron(a.adjoint()).add(a.adjoint().kron(a)).scale(0.2);
  const dims = Array.from({ length: count }, () => 3);
  const size = 3 ** count;
  // The state |1...1>; its density matrix is built on the device, because at D = 6561 it has 688 MB.
  const place = (size - 1) / 2;
  const one = weft.arange(0, size, 1, { dtype: "int32" }).equal(place).cast("float64");
  const rho = one.reshape([size, 1]).mul(one.reshape([1, size]));
  return {
    hamiltonian: {
      dims,
      static: [
        ...dims.map((_, i) => ({ sites: [i], matrix: n.scale(0.3 + 0.05 * i).add(anharmonic) })),
        ...dims.slice(1).map((_, i) => ({ sites: [i, i + 1], matrix: hop })),
      ],
      drives: [{ sites: [0], matrix: a.add(a.adjoint()) }],
    },
    jumps: dims.map((_, i) => ({ operator: a, sites: [i], rate: 0.05 })),
    start: weft.complex(rho, weft.zerosLike(rho)).realize(),
  };
}

const amplitudes = (): Tensor =>
  weft.tensor(
    Array.from({ length: steps }, (_, k) => [0.2 * Math.sin(0.1 * k)]),
    f64,
  );

type Cavities = ReturnType<typeof cavities>;
const final = ({ hamiltonian: h, jumps }: Cavities, table: Tensor, rho: Tensor, isCheckpointed = false): Tensor =>
  lindblad({ hamiltonian: { ...h, amplitudes: table }, jumps }, rho, {
    duration: 10,
    steps,
    method: "rk4",
    gradient: isCheckpointed ? "checkpointed" : "stored",
  }).final;

const device = () => weft.session().device as { synchronize?(): void };
const synced = (call: () => Tensor | Tensor[]): PreparedRow["call"] => {
  return () => {
    const made = call();
    for (const t of Array.isArray(made) ? made : [made]) t.realize();
    device().synchronize?.();
    for (const t of Array.isArray(made) ? made : [made]) t.dispose();
  };
};

function evolution(count: number): PreparedRow {
  const system = cavities(count);
  const fn = weft.jit((table: Tensor, rho: Tensor) => final(system, table, rho));
  const table = amplitudes();
  const got = fn(table, system.start);
  const check = [0, 1].map((k) => weft.real(got.index(k, k)).itemSync());
  got.dispose();
  const info = { kernels: fn.kernels(table, system.start) };
  return { check, info, call: synced(() => fn(table, system.start)), release: () => system.start.dispose() };
}

/** Number of cavities from which the states of all steps would take more than half a gigabyte. */
const checkpointsFrom = 6;

function gradient(count: number): PreparedRow {
  const system = cavities(count);
  const loss = (table: Tensor, rho: Tensor): Tensor =>
    weft.real(final(system, table, rho, count >= checkpointsFrom).index(0, 0));
  const fn = weft.jit((table: Tensor, rho: Tensor) => weft.valueAndGrad((t: Tensor) => loss(t, rho))(table));
  const table = amplitudes();
  const [value, slopes] = fn(table, system.start);
  const check = [value.itemSync(), slopes.square().sum().sqrt().itemSync()];
  return { check, call: synced(() => fn(table, system.start)) };
}

function batch(count: number, batchSize: number): PreparedRow {
  const system = cavities(count);
  const table = amplitudes();
  const one = (scale: Tensor): Tensor => weft.real(final(system, table.mul(scale), system.start).index(0, 0));
  const fn = weft.jit((scales: Tensor) => weft.vmap(one)(scales));
  const scales = weft.linspace(0.5, 1.5, batchSize, f64).realize();
  return {
    check: [fn(scales).sum().itemSync()],
    call: synced(() => fn(scales)),
    info: { kernels: fn.kernels(scales) },
  };
}

/** Time steps of the gate. */
const gateSteps = 20;

/** Value and gradient of X on every one of some coupled three-level qubits, in the amplitudes of their pulses. */
function gateGradient(count: number): PreparedRow {
  const names = Array.from({ length: count }, (_, k) => `q${k}`);
  const frequency = (k: number): number => 5 + 0.1 * k;
  const device = new QuantumDevice({
    parts: Object.fromEntries(
      names.map((name, k) => [name, new Duffing({ frequency: frequency(k), anharmonicity: -0.3, levels: 3 })]),
    ),
    couplings: names.slice(1).map((name, k) => ({ between: [names[k], name] as const, jc: 0.005 })),
    drives: names.map((on, k) => ({
      on,
      name: "x",
      operator: "n" as const,
      pulse: cosinePulse({ length: 1, amplitude: 0.3, omega: 2 * Math.PI * frequency(k) }),
    })),
  });
  const target = gate("X", count);
  const loss = (p: DeviceParameters): Tensor =>
    averageGateInfidelity(evolve(device.with(p), { steps: gateSteps }), target);
  const learned = Object.fromEntries(Object.entries(device.parameters()).filter(([key]) => key.endsWith("amplitude")));
  const fn = weft.jit((p: DeviceParameters) => weft.valueAndGrad(loss)(p) as [Tensor, DeviceParameters]);
  const [value, slopes] = fn(learned);
  const check = [value.itemSync(), ...Object.values(slopes).map((x) => x.itemSync())];
  return {
    check,
    call: synced(() => {
      const [one, gradient] = fn(learned);
      return [one, ...Object.values(gradient)];
    }),
  };
}

const qubit = {
  hamiltonian: hamiltonian({ static: sigmaX.scale(0.5).add(sigmaZ.scale(0.3)) }),
  jumps: [{ operator: sigmaMinus, rate: 0.4 }],
};

function trajectories(count: number, stepCount: number): PreparedRow {
  const options = {
    duration: 1,
    steps: stepCount,
    trajectories: count,
    observables: { z: sigmaZ },
    dtype: "complex64",
  } as const;
  const fn = weft.jit((psi: Tensor) => {
    const { mean, error } = diffusive(qubit, psi, options).averages.z;
    return [mean, error];
  });
  const psi = basisState(2, 0).tensor("complex64").squeeze(1).realize();
  const [mean, error] = fn(psi).map((x) => x.dataSync()[0] as number);
  const exact = lindblad(qubit, densityOf(basisState(2, 0)), { duration: 1, steps: 200, observables: { z: sigmaZ } });
  return {
    check: [mean, error, exact.expectations.z.dataSync()[0] as number],
    info: { kernels: fn.kernels(psi) },
    call: synced(() => fn(psi)),
  };
}

const agree =
  (tolerance: number) =>
  ({ weft: ours, jax }: Answers): string | null => {
    if (ours.some((x) => !Number.isFinite(x))) return `not finite: ${ours.join(", ")}`;
    const worst = jax === undefined ? 0 : Math.max(...jax.map((x, k) => Math.abs(x - ours[k])));
    return worst <= tolerance ? null : `Weft and JAX differ by ${worst}`;
  };

const withinErrors = ({ weft: [mean, error, exact] }: Answers): string | null =>
  Math.abs(mean - exact) <= 3 * error ? null : `the mean ${mean} +- ${error} is not the master equation's ${exact}`;

interface MiddleRow extends ContestRow {
  make(): PreparedRow;
}

function table(deviceName: string, quick: boolean): MiddleRow[] {
  const gpu = deviceName !== "cpu";
  const limits: Record<number, number> = gpu ? { 3: 1, 4: 2, 5: 5, 6: 20, 8: 8000 } : { 4: 25 };
  const pick = <T>(tiny: T[], cpu: T[], cuda: T[]): T[] => (quick ? tiny : gpu ? cuda : cpu);
  const peers = { jax: null };
  return [
    ...pick([3], [3, 4, 5], [3, 4, 5, 6, 8]).map((count) => ({
      id: `cavities-${3 ** count}`,
      title: `${count} cavities, D = ${3 ** count}, one density matrix, 100 RK4 steps`,
      peers: count > 6 ? {} : peers,
      limitMs: limits[count],
      check: agree(1e-10),
      make: () => evolution(count),
    })),
    ...pick([3], [4], [4, 6]).map((count) => ({
      id: `gradient-${3 ** count}`,
      title: `value and gradient of 100 amplitudes, D = ${3 ** count}, ${count < checkpointsFrom ? "states stored" : "checkpoints"}`,
      peers,
      check: agree(1e-9),
      make: () => gradient(count),
    })),
    ...pick([2], [6], [6]).map((count) => ({
      id: `gate-${3 ** count}`,
      title: `gradient step of a gate on ${count} three-level qubits, D = ${3 ** count}, ${gateSteps} time steps`,
      peers: {},
      // A tenth of the 53 ms per time step that products of whole matrices took.
      limitMs: quick ? undefined : 5.3 * gateSteps,
      make: () => gateGradient(count),
    })),
    ...pick<[number, number]>([[3, 2]], [[4, 8]], [[4, 256]]).map(([count, size]) => ({
      id: `batch-${3 ** count}-${size}`,
      title: `${size} states of D = ${3 ** count}`,
      peers: gpu && !quick ? { jax: 10 } : peers,
      check: agree(1e-8),
      make: () => batch(count, size),
    })),
    ...pick<[number, number]>([[8, 10]], [[10000, 1000]], [[1000000, 1000]]).map(([count, stepCount]) => ({
      id: `diffusive-${count}-${stepCount}`,
      title: `${count.toLocaleString("en-US")} diffusive qubit trajectories, ${stepCount} steps, complex64`,
      peers,
      limitMs: gpu && !quick ? 50 : undefined,
      check: quick ? undefined : withinErrors,
      make: () => trajectories(count, stepCount),
    })),
  ];
}

const suite: Suite = {
  defaults: { rounds: "3" },
  async run(context: Context) {
    const { cores, device: name, quick } = context;
    const peers = startPeers(context, { jax: ["jax_middle.py"] });
    const line = [entryPoint, "serve", "quantum-middle", "--device", name, ...(quick ? ["--quick"] : [])];
    const { record, contest } = await runContest(
      context,
      name === "cpu" ? "quantum-middle-cpu" : "quantum-middle",
      table(name, quick),
      {
        seats,
        start: { weft: () => new PeerProcess("weft", cores, process.execPath, line), ...peers.start },
        absent: peers.absent,
      },
    );
    contest.stop();
    printTable(record);
  },
  async serve(context) {
    weft.setDevice(context.device);
    const makers = Object.fromEntries(table(context.device, context.quick).map(({ id, make }) => [id, make]));
    const about = { name: "weft 0.1.0", device: weft.session().device.name };
    return serveContestant(new LocalContestant(makers, about, context.quick ? 0 : 0.2));
  },
};

export default suite;
