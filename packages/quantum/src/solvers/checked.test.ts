// What solvers refuse, and what they return: Hermitian initial states, complex expectation values, saves at given times, rates that
// depend on time, and memory that does not grow with the number of steps.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import * as weft from "@weft/core";
import {
  basisState,
  coherentState,
  densityOf,
  destroy,
  identityOperator,
  numberOperator,
  Operator,
  sigmaMinus,
  sigmaX,
  sigmaY,
  sigmaZ,
} from "../operators/index.js";
import {
  diffusive,
  dopri8,
  expectation,
  explainRightHandSide,
  floquetModes,
  type Hamiltonian,
  hamiltonian,
  type LindbladOptions,
  lindblad,
  type MethodName,
  propagator,
  schrodinger,
  steadyState,
  superPropagator,
  trotter2,
  tsit5,
} from "./index.js";

const near = (got: number, want: number, tolerance: number, name = ""): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);
const still = hamiltonian({ static: sigmaZ });
const decay = { hamiltonian: still, jumps: [{ operator: sigmaMinus, rate: 0.3 }] };
const excited = densityOf(basisState(2, 1));

test("an initial state that is not Hermitian is refused, and NaN inside a trace", () => {
  const skew = [
    [0.5, { re: 0, im: 0.3 }],
    [0.1, 0.5],
  ];
  const options = { duration: 1, steps: 10 };
  for (const representation of ["real", "matrix"] as const) {
    assert.throws(() => lindblad(decay, skew, { ...options, representation }), /rho0.*is not Hermitian/);
    const tensor = Operator.from(skew).tensor();
    assert.throws(() => lindblad(decay, tensor, { ...options, representation }), /rho0 is not Hermitian/);
    const traced = weft.jit((rho: weft.Tensor) => lindblad(decay, rho, { ...options, representation }).final);
    assert.ok(Number.isNaN(Number(traced(tensor).dataSync()[0])), "no number follows from it");
    near(Number(traced(excited.tensor()).dataSync()[6]), Math.exp(-0.3), 1e-6);
  }
});

test("expectation values of operators that are not Hermitian are complex", () => {
  const n = 12;
  const h = hamiltonian({ static: numberOperator(n).scale(0.7) });
  const a = destroy(n);
  const observables = { a, traced: a.tensor(), n: numberOperator(n) };
  const wanted = { re: Math.cos(0.7), im: -Math.sin(0.7) };
  const closed = schrodinger(h, coherentState(n, 1), { duration: 1, steps: 20, method: "trotter2", observables });
  const open = lindblad({ hamiltonian: h, jumps: [] }, densityOf(coherentState(n, 1)), {
    duration: 1,
    steps: 60,
    observables,
  });
  for (const { expectations } of [closed, open]) {
    for (const value of [expectations.a, expectations.traced]) {
      const [re, im] = value.dataSync() as Float64Array;
      near(re, wanted.re, 1e-5);
      near(im, wanted.im, 1e-5);
    }
    assert.equal(expectations.n.dtype, "float64");
  }
  const single = expectation(a.tensor(), coherentState(n, 1).tensor().squeeze(1), "state");
  assert.equal(single.dtype, "complex128");
});

test("states are saved at given times, the start included; values need no stored states", () => {
  const tsave = [0, 0.15, 0.5, 0.85];
  const wanted = tsave.map((t) => Math.exp(-0.3 * t));
  const observables = { up: densityOf(basisState(2, 1)) };
  const options: LindbladOptions[] = [
    { method: tsit5({ maxSteps: 100 }) },
    { method: dopri8({ maxSteps: 100 }) },
    { method: "rk4", steps: 20 },
    { method: "cptp2", steps: 20 },
    { method: "pwcExpm", steps: 20 },
  ];
  for (const each of options)
    for (const saveStates of [true, false]) {
      const run = lindblad(decay, excited, { ...each, tsave, duration: 1, observables, saveStates });
      const found = run.expectations.up.dataSync() as Float64Array;
      wanted.forEach((value, k) => void near(found[k], value, 1e-6, `${each.method} at ${tsave[k]}`));
      assert.deepEqual(run.times.arraySync(), tsave);
      assert.deepEqual(run.states?.shape ?? null, saveStates ? [4, 2, 2] : null);
      near(Number(run.final.dataSync()[6]), Math.exp(-0.3), 1e-6, "at the end of the duration");
    }
  const flip = hamiltonian({ static: sigmaX.scale(0), drives: [sigmaX], amplitudes: [[1], [0], [2]] });
  const angle = (t: number): number => Math.min(t, 1) + 2 * Math.max(0, t - 2);
  const methods: [MethodName | ReturnType<typeof tsit5>, number | undefined][] = [
    ["trotter2", 60],
    ["rk4", 60],
    ["pwcExpm", 60],
    [tsit5({ maxSteps: 100 }), undefined],
  ];
  for (const [method, steps] of methods) {
    const run = schrodinger(flip, basisState(2, 0), { method, steps, tsave: [0.5, 1.7, 3], observables });
    const found = run.expectations.up.dataSync() as Float64Array;
    [0.5, 1.7, 3].forEach((t, k) => void near(found[k], Math.sin(angle(t)) ** 2, 1e-6, `${String(method)} at ${t}`));
  }
});

test("saves that are not sorted, outside or given twice are refused", () => {
  const save = (tsave: number[], more: object = {}) =>
    lindblad(decay, excited, { tsave, duration: 1, steps: 10, ...more });
  assert.throws(() => save([0.5, 0.2]), /tsave must ascend.*0\.2 at index 1/);
  assert.throws(() => save([0.5, 0.5]), /tsave must ascend/);
  assert.throws(() => save([0.5, 1.5]), /tsave must ascend.*1\.5 at index 1/);
  assert.throws(() => save([-0.1]), /tsave must ascend/);
  assert.throws(() => save([]), /no times/);
  assert.throws(() => save([0.5], { saves: 2 }), /saves .* or tsave/);
  assert.throws(() => lindblad(decay, excited, { steps: 10 }), /give duration/);
});

test("rates may depend on time", () => {
  const rate = (t: weft.Tensor): weft.Tensor => t.mul(0.8);
  for (const method of ["rk4", "pwcExpm", "cptp2", tsit5({ maxSteps: 200 })] as const) {
    const steps = typeof method === "string" ? 50 : undefined;
    for (const representation of ["real", "matrix"] as const) {
      const system = {
        hamiltonian: still,
        jumps: [
          { operator: sigmaX, rate: 0 },
          { operator: sigmaMinus, rate },
        ],
      };
      const { final } = lindblad(system, excited, { duration: 1.5, steps, method, representation });
      near(Number(final.dataSync()[6]), Math.exp(-0.4 * 1.5 ** 2), 1e-6, `${String(method)} ${representation}`);
    }
  }
  // The gradient of the final population with respect to a parameter of the rate: -1/2 T^2 exp(-c T^2 / 2).
  const value = (c: weft.Tensor): weft.Tensor => {
    const system = { hamiltonian: still, jumps: [{ operator: sigmaMinus, rate: (t: weft.Tensor) => t.mul(c) }] };
    return lindblad(system, excited, { duration: 1, steps: 30 }).final.index(1, 1).real();
  };
  near(
    weft
      .grad(value)(weft.tensor(0.8, { dtype: "float64" }))
      .itemSync(),
    -0.5 * Math.exp(-0.4),
    1e-7,
  );
});

test("tensors that are not Hermitian, negative rates and unknown options are refused", () => {
  const skew = Operator.from([
    [0, 1],
    [0.2, 0],
  ]).tensor();
  assert.throws(() => hamiltonian({ static: skew }), /is not Hermitian/);
  assert.throws(() => hamiltonian({ static: sigmaZ, drives: [skew], amplitudes: [[1]] }), /drive 0: is not Hermitian/);
  assert.throws(
    () => hamiltonian({ static: sigmaZ, drive: [sigmaX] } as never),
    /no option "drive"; did you mean "drives"/,
  );
  assert.throws(() => hamiltonian({ static: sigmaZ, amplitudes: [[1]] }), /amplitudes without drives/);
  const options = { duration: 1, steps: 10 };
  const withRate = (rate: weft.Tensor | number) => ({ hamiltonian: still, jumps: [{ operator: sigmaMinus, rate }] });
  assert.throws(() => lindblad(withRate(weft.tensor(-0.1, { dtype: "float64" })), excited, options), />= 0, got -0.1/);
  assert.throws(() => lindblad(withRate(Number.NaN), excited, options), />= 0, got NaN/);
  const traced = weft.jit((rate: weft.Tensor) => lindblad(withRate(rate), excited, options).final.index(1, 1).real());
  assert.ok(Number.isNaN(traced(weft.tensor(-0.1, { dtype: "float64" })).itemSync()));
  near(traced(weft.tensor(0.1, { dtype: "float64" })).itemSync(), Math.exp(-0.1), 1e-6);
  const wrong = { ...options, step: 3 } as never;
  assert.throws(() => lindblad(decay, excited, wrong), /no option "step"; did you mean "steps"/);
  assert.throws(() => schrodinger(still, basisState(2, 0), wrong), /no option "step"/);
  assert.throws(() => propagator(still, wrong), /no option "step"/);
  assert.throws(() => tsit5({ rtol: 1e-9 } as never), /no option "rtol"/);
  assert.throws(() => trotter2({ spliting: "terms" } as never), /no option "spliting"/);
  assert.throws(() => lindblad(decay, excited, { duration: 1, steps: 5, method: tsit5() }), /chooses its own steps/);
  const jump = { operator: sigmaMinus, rates: 1 } as never;
  assert.throws(() => lindblad({ hamiltonian: still, jumps: [jump] }, excited, options), /no option "rates"/);
});

test("the check of a result names what is not physical", () => {
  const strong = hamiltonian({ static: sigmaX.scale(3) });
  const coarse = { duration: 4, steps: 8, method: "rk4" as const };
  assert.throws(() => schrodinger(strong, basisState(2, 0), coarse).check(), /norm of the final state/);
  const open = { hamiltonian: strong, jumps: [{ operator: sigmaMinus, rate: 0.01 }] };
  assert.throws(() => lindblad(open, excited, coarse).check(), /has an eigenvalue of -/);
  assert.throws(() => propagator(strong, { duration: 4, method: tsit5({ maxSteps: 3 }) }).check(), /did not reach/);
  const { norm, smallestEigenvalue } = lindblad(open, excited, { ...coarse, steps: 400 }).check();
  near(norm, 1, 1e-9);
  assert.ok(smallestEigenvalue! > -1e-9 && smallestEigenvalue! < 0.1);
});

test("the check of steps that keep the norm estimates their error, and refuses steps that are too long", () => {
  const h = hamiltonian({
    static: sigmaZ.scale(1.5),
    drives: [sigmaX],
    amplitudes: (t) => t.mul(2.5).cos().unsqueeze(1),
  });
  const system = { hamiltonian: h, jumps: [{ operator: sigmaMinus, rate: 0.1 }] };
  const exact = { duration: 3, method: dopri8({ relative: 1e-11, absolute: 1e-12 }) };
  const numbers = (x: weft.Tensor): number[] => Array.from(x.dataSync() as Float64Array);
  const ket = numbers(schrodinger(h, basisState(2, 0), exact).final);
  const rho = numbers(lindblad(system, excited, exact).final);
  const runs = [
    ...(["trotter2", "trotter4", "pwcExpm", "krylov"] as const).map((method) => ({
      run: (steps: number) => schrodinger(h, basisState(2, 0), { duration: 3, steps, method }),
      want: ket,
    })),
    ...(["cptp2", "rouchon2", "krylov"] as const).map((method) => ({
      run: (steps: number) => lindblad(system, excited, { duration: 3, steps, method }),
      want: rho,
    })),
  ];
  for (const { run, want } of runs) {
    const fine = run(240);
    const { error } = fine.check();
    const truth = Math.hypot(...numbers(fine.final).map((x, k) => x - want[k]));
    // Of a matrix the estimate is that of its worst column.
    assert.ok(error! > 0.6 * truth && error! < 1.6 * truth, `${fine.method.name}: ${error} beside ${truth}`);
    assert.throws(() => run(3).check(), /3 steps of \w+ leave an estimated error of .* more than 0\.001; use more/);
    assert.throws(() => run(240).check({ error: truth / 10 }), /240 steps/);
    assert.equal(run(3).check({ error: Number.POSITIVE_INFINITY }).norm > 0.9, true);
  }
  const period = { duration: (2 * Math.PI) / 2.5, steps: 4, method: "trotter2" as const };
  assert.throws(() => floquetModes(h, period), /4 steps of trotter2 leave an estimated error/);
  assert.throws(() => superPropagator(system, { ...period, method: "cptp2" }), /4 steps of cptp2 leave an estimated/);
  const few = { duration: 3, method: tsit5({ maxSteps: 2 }) };
  assert.throws(() => superPropagator(system, few), /did not reach the end/);
});

const skip = weft.CpuDevice.available() ? false : "needs a compiler";

test("maps of steps are stored for a bounded number of steps", { skip }, () => {
  const d = 4;
  const drive = destroy(d).add(destroy(d).adjoint());
  const h: Hamiltonian = hamiltonian({
    static: numberOperator(d),
    drives: [drive],
    amplitudes: (t) => t.mul(2).cos().mul(0.1).unsqueeze(1),
  });
  const start = densityOf(basisState(d, 0));
  const run = (method: MethodName, steps: number): { value: number; peak: number } => {
    const before = weft.session().device;
    const device = new weft.CpuDevice({ threads: 1 });
    weft.useDevice(device);
    try {
      const program = weft.jit((size: weft.Tensor) => {
        const system = { hamiltonian: h, jumps: [{ operator: destroy(d), rate: size }] };
        return lindblad(system, start, { duration: 1, steps, method }).final.index(0, 0).real();
      });
      return { value: program(weft.tensor(0.1, { dtype: "float64" })).itemSync(), peak: device.memory().peakBytes };
    } finally {
      weft.useDevice(before);
    }
  };
  for (const method of ["pwcExpm", "cptp2"] as const) {
    const [few, many] = [run(method, 1000), run(method, 20000)];
    near(few.value, many.value, 1e-5, method);
    // The maps of 20,000 steps have 82 MB.
    assert.ok(many.peak < 40e6, `${method}: ${few.peak} and ${many.peak} bytes`);
  }
});

test("a program that imports this package alone runs where core would run it", () => {
  const script =
    'import { sigmaX } from "@weft/quantum"; import { session } from "@weft/core/internal/runtime";' +
    "console.log(sigmaX.tensor().abs().sum().itemSync(), session().device.name);";
  const run = (env: Record<string, string>) =>
    spawnSync(process.execPath, ["--input-type=module", "-e", script], {
      encoding: "utf8",
      cwd: import.meta.dirname,
      env: { ...process.env, ...env },
      timeout: 60_000,
    });
  const usual = run({});
  assert.equal(usual.stdout.trim(), `2 ${weft.CpuDevice.available() ? "cpu" : "reference"}`, usual.stderr);
  const cluster = run({ WEFT_CONNECT: "127.0.0.1:1" });
  assert.notEqual(cluster.status, 0, `WEFT_CONNECT is not ignored: ${cluster.stdout}`);
});

test("steady states, maps and Floquet modes agree with closed forms", () => {
  // A resonantly driven qubit: population 4 w^2 / (g^2 + 8 w^2) of the excited state for H = w X and decay g.
  const population = (w: weft.Tensor): weft.Tensor => {
    const h = hamiltonian({ static: sigmaX.tensor().mul(w) });
    return steadyState({ hamiltonian: h, jumps: [{ operator: sigmaMinus, rate: 1.3 }] })
      .index(1, 1)
      .real();
  };
  const closed = (w: number): number => (4 * w * w) / (1.3 ** 2 + 8 * w * w);
  const w = weft.tensor(0.4, { dtype: "float64" });
  near(population(w).itemSync(), closed(0.4), 1e-12);
  near(
    weft.grad(population)(w).itemSync(),
    (closed(0.4 + 1e-5) - closed(0.4 - 1e-5)) / 2e-5,
    1e-8,
    "implicit gradient",
  );
  assert.throws(() => steadyState({ hamiltonian: still, jumps: [] }), /not unique/);
  // The same in units of femtoseconds and of years.
  for (const unit of [1e15, 1e-15]) {
    const system = {
      hamiltonian: hamiltonian({ static: sigmaX.scale(0.4 * unit) }),
      jumps: [{ operator: sigmaMinus, rate: 1.3 * unit }],
    };
    near(steadyState(system).index(1, 1).real().itemSync(), closed(0.4), 1e-12, "units");
  }
  const map = superPropagator(decay, { duration: 1, steps: 200 }).dataSync() as Float64Array;
  const at = (i: number, j: number): [number, number] => [map[2 * (4 * i + j)], map[2 * (4 * i + j) + 1]];
  near(at(3, 3)[0], Math.exp(-0.3), 1e-9);
  near(at(0, 3)[0], 1 - Math.exp(-0.3), 1e-9);
  // Coherences rotate with H = Z: rho_01 gets exp(-2 i t).
  near(at(1, 1)[0], Math.exp(-0.15) * Math.cos(2), 1e-7);
  near(at(1, 1)[1], -Math.exp(-0.15) * Math.sin(2), 1e-7);
  // In the rotating frame, H(t) = w0 Z / 2 + g (X cos wt + Y sin wt) has energies w/2 +- sqrt((w0 - w)^2 / 4 + g^2) modulo w.
  const [w0, wd, g] = [1.1, 1.7, 0.3];
  const h = hamiltonian({
    static: sigmaZ.scale(w0 / 2),
    drives: [sigmaX, sigmaY],
    amplitudes: (t) => weft.stack([t.mul(wd).cos().mul(g), t.mul(wd).sin().mul(g)], 1),
  });
  const period = (2 * Math.PI) / wd;
  const { energies, modes } = floquetModes(h, { duration: period, method: dopri8({ maxSteps: 1000 }) });
  const found = Array.from(energies.dataSync() as Float64Array).sort((x, y) => x - y);
  const fold = (x: number): number => x - wd * Math.round(x / wd);
  const split = Math.hypot((w0 - wd) / 2, g);
  const wanted = [fold(wd / 2 + split), fold(wd / 2 - split)].sort((x, y) => x - y);
  wanted.forEach((x, k) => void near(found[k], x, 1e-7, "quasi-energy"));
  const back = propagator(h, { duration: period, method: dopri8({ maxSteps: 1000 }) }).final.matmul(modes);
  const overlaps = modes.conj().mul(back).sum(0).abs().dataSync() as Float64Array;
  overlaps.forEach((x) => void near(x, 1, 1e-7, "modes return after a period"));
});

test("Floquet modes of phases that differ by a fraction of pi", () => {
  // exp(-i H T) with phases 0 and pi / 4.
  const mixed = sigmaX
    .add(sigmaZ)
    .scale(Math.PI / 8 / Math.SQRT2)
    .sub(identityOperator(2).scale(Math.PI / 8));
  const { energies, modes } = floquetModes(hamiltonian({ static: mixed }), {
    duration: 1,
    method: "pwcExpm",
    steps: 4,
  });
  const found = Array.from(energies.dataSync() as Float64Array).sort((x, y) => x - y);
  near(found[0], -Math.PI / 4, 1e-9, "lower");
  near(found[1], 0, 1e-9, "upper");
  const image = mixed
    .tensor()
    .matmul(modes)
    .sub(modes.mul(energies.cast("complex128")));
  near(image.abs().max().itemSync(), 0, 1e-8, "modes");
});

test("Hamiltonians that are written as objects are checked like those of hamiltonian()", () => {
  const plain = (sites: number[], matrix = sigmaX.kron(sigmaZ), dims = [2, 2]): Hamiltonian => ({
    dims,
    static: [{ sites, matrix }],
    drives: [],
    amplitudes: null,
  });
  const options = { duration: 1, steps: 10, method: "rk4" } as const;
  const rho = densityOf(basisState(4, 1));
  const jumps = [0, 1].map((site) => ({ operator: sigmaMinus, sites: [site] }));
  // X Z on sites 1 and 0 evolved as if it were on 0 and 1, and a site that does not exist as if it were the last one.
  const solvers: ((h: Hamiltonian) => unknown)[] = [
    (h) => schrodinger(h, basisState(4, 1), options),
    (h) => propagator(h, { duration: 1, steps: 10 }),
    (h) => lindblad({ hamiltonian: h, jumps }, rho, options),
    (h) => steadyState({ hamiltonian: h, jumps }),
    (h) =>
      diffusive({ hamiltonian: h, jumps }, basisState(4, 1).tensor().squeeze(1), {
        duration: 1,
        steps: 10,
        trajectories: 2,
      }),
    (h) => explainRightHandSide(h),
  ];
  for (const solve of solvers) {
    assert.throws(() => solve(plain([1, 0])), /static term 0 acts on sites \[1, 0\]; they must ascend and lie in 0..1/);
    assert.throws(() => solve(plain([0, 2])), /acts on sites \[0, 2\]/);
    assert.throws(() => solve(plain([0], sigmaX.kron(sigmaZ))), /needs a 2x2 matrix, got 4x4/);
    assert.throws(() => solve(plain([1], sigmaMinus)), /static term 0: is not Hermitian/);
    assert.throws(() => solve(plain([0], sigmaX, [2, 0])), /dims must be whole numbers >= 1, got \[2, 0\]/);
    solve(plain([0, 1]));
  }
});

test("the trace of a final density matrix is 1, as the norm of a final ket is", () => {
  const system = { hamiltonian: hamiltonian({ static: sigmaZ }), jumps: [{ operator: sigmaMinus, rate: 0.1 }] };
  const run = (scale: number) => lindblad(system, densityOf(basisState(2, 0)).scale(scale), { duration: 1, steps: 50 });
  assert.throws(() => run(2).check(), /trace of the final state is (2|1\.99)\S* instead of 1/);
  assert.throws(() => run(0.9).check(), /trace of the final state is 0\.[89]\S* instead of 1/);
  run(1).check();
});
