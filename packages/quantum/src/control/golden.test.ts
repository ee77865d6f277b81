// Published values and gradients of the one-qubit control problem on every device, closed forms, and errors for steps that are
// too coarse.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { assertClose } from "@weft/testing/compare";
import { onEachDevice } from "@weft/testing/devices";
import {
  basisState,
  densityOf,
  destroy,
  Operator,
  onSite,
  pauli,
  sigmaMinus,
  sigmaX,
  sigmaZ,
} from "../operators/index.js";
import { hamiltonian, lindblad } from "../solvers/index.js";
import {
  type ChosenSteps,
  type ControlProblem,
  checkFidelities,
  chooseSteps,
  controlFidelities,
  controlInfidelity,
  controlledZ,
  defaultProbes,
  explainSteps,
  halvingError,
  plainProblem,
  prepareProblem,
  qubitFlip,
  type StepMethod,
} from "./index.js";

const f64 = (data: weft.NestedData | number[]): Tensor => weft.tensor(data as number[], { dtype: "float64" });

const flip = (segments: number) => prepareProblem(qubitFlip({ segments }));
const constantPulse = (segments: number): Tensor =>
  f64(Array.from({ length: segments }, () => [Math.PI / 2, 0]) as never);
const testPulse = (): Tensor =>
  f64(
    Array.from({ length: 60 }, (_, k) => [
      (Math.PI / 2) * (1 + 0.1 * Math.sin((2 * Math.PI * k) / 60)),
      0.2 * Math.cos((2 * Math.PI * k) / 60),
    ]) as never,
  );

const fidelityOf = (segments: number, method: StepMethod, pulse: Tensor, rates: number[], perSegment = 1): number => {
  const lost = weft.jit((u: Tensor, g: Tensor) => controlInfidelity(flip(segments), { method, perSegment }, u, g));
  return 1 - lost(pulse, f64(rates)).itemSync();
};

onEachDevice((_, name) => {
  test("a constant pi pulse has the exact fidelity, and each method its known error", () => {
    const exact = fidelityOf(20, "taylor8", constantPulse(20), [0.05, 0.025], 2);
    assertClose(exact, 0.9784413379, { rtol: 1e-10 });
    assertClose(fidelityOf(20, "taylor8", constantPulse(20), [0.1, 0.05], 2), 0.9575002243, { rtol: 1e-10 });
    const error = (segments: number, method: StepMethod, perSegment = 1): number =>
      fidelityOf(segments, method, constantPulse(segments), [0.05, 0.025], perSegment) - exact;
    assertClose(error(20, "rk4"), -5.8e-7, { rtol: 0.02 });
    assertClose(error(60, "rk4"), 1.1e-9, { rtol: 0.5 });
    assertClose(error(20, "euler"), 0.132, { rtol: 5e-3 });
    assertClose(error(20, "euler", 2), 0.0627, { rtol: 2e-3 });
    assertClose(error(60, "euler"), 0.041, { rtol: 2e-3 });
    assertClose(error(20, "euler", 5), 0.0242, { rtol: 2e-3 });
  });

  test("value and gradients of the test pulse equal the published digits", () => {
    const rates = [0.05, 0.025];
    assertClose(fidelityOf(60, "rk4", testPulse(), rates), 0.9778427990483176, { rtol: 1e-14 });
    assertClose(fidelityOf(60, "taylor8", testPulse(), rates, 2), 0.9778427984518929, { rtol: 1e-14 });
    assertClose(fidelityOf(60, "euler", testPulse(), rates), 1.0190239, { rtol: 5e-8 });
    const fidelity = (u: Tensor, g: Tensor): Tensor =>
      weft.sub(1, controlInfidelity(flip(60), { method: "rk4", perSegment: 1 }, u, g));
    const [slopes, rateSlopes] = weft.jit(weft.grad(fidelity, { argument: [0, 1] }))(testPulse(), f64(rates));
    const rows = slopes!.arraySync() as number[][];
    assertClose(f64(rows[0]!), [6.943591e-5, -3.249383e-4], { rtol: 3e-7 });
    assertClose(f64(rows[59]!), [3.231053e-4, 2.678405e-4], { rtol: 3e-7 });
    assertClose(Math.hypot(...rows.flat()), 2.934092024e-3, { rtol: 2e-10 });
    assertClose(rateSlopes!, [-0.2410146322, -0.3876397128], { rtol: 2e-10 });
  });

  test("float32 values are accurate to six digits and gradients to four", () => {
    const fidelity = (u: Tensor): Tensor =>
      weft.sub(1, controlInfidelity(flip(60), { method: "rk4", perSegment: 1 }, u, weft.tensor([0.05, 0.025])));
    const [value, slopes] = weft.valueAndGrad(fidelity)(testPulse().cast("float32"));
    assertClose(value, 0.9778427990483176, { rtol: 1e-6 });
    assertClose(slopes.square().sum().sqrt(), 2.934092e-3, { rtol: 1e-4 });
  });

  test("a batch with its gradient is one lane kernel", () => {
    if (name === "reference") return;
    const prepared = flip(60);
    const loss = (u: Tensor, g: Tensor): Tensor =>
      weft
        .vmap((a: Tensor, b: Tensor) => controlInfidelity(prepared, { method: "rk4", perSegment: 1 }, a, b))(u, g)
        .sum();
    const step = weft.jit(weft.valueAndGrad(loss));
    const kernels = step.kernels(weft.zeros([8, 60, 2]), weft.zeros([8, 2]));
    assert.equal(kernels.filter((k) => k.startsWith("lanes_8x60x2")).length, 1, kernels.join());
    assert.ok(kernels.length <= 4, kernels.join());
  });

  test("decay of three levels and rotation of two qubits equal closed forms", () => {
    // A cavity with three levels and no drive: |1> decays as e^(-kt), which is the fidelity.
    const decay: ControlProblem = {
      controls: [Operator.zeros(3)],
      channels: [destroy(3)],
      pairs: [{ initial: densityOf(basisState(3, 1)), target: densityOf(basisState(3, 1)) }],
      segments: 4,
      duration: 1.5,
    };
    const [kept] = controlFidelities(prepareProblem(decay), exactly, {
      controls: weft.zeros([1, 4, 1], { dtype: "float64" }),
      rates: f64([[0.7]] as never),
    });
    assertClose(kept!, Math.exp(-0.7 * 1.5), { rtol: 1e-9 });
    // exp(-i a XX t): |00> -> cos(at)^2, the mean over two pairs.
    const both: ControlProblem = {
      controls: [pauli("XX")],
      channels: [pauli("ZI")],
      pairs: [
        { initial: densityOf(basisState(4, 0)), target: densityOf(basisState(4, 3)) },
        { initial: densityOf(basisState(4, 0)), target: densityOf(basisState(4, 0)) },
        { initial: densityOf(basisState(4, 1)), target: densityOf(basisState(4, 2)) },
      ],
      segments: 5,
      duration: 2,
    };
    const [mean] = controlFidelities(prepareProblem(both), exactly, {
      controls: weft.full([1, 5, 1], 0.3, { dtype: "float64" }),
      rates: f64([[0]] as never),
    });
    const moved = Math.sin(0.6) ** 2;
    assertClose(mean!, (moved + (1 - moved) + moved) / 3, { rtol: 1e-9 });
  });

  test("controlledZ: the coupling with local Z controls is the gate, and grouped channels share a rate", () => {
    const prepared = prepareProblem(controlledZ({ segments: 6 }));
    // exp(-i pi/4 ZZ) exp(i pi/4 (ZI + IZ)) is CZ up to a phase: Z controls at -1 while the coupling is on.
    const u = f64(Array.from({ length: 6 }, () => [0, 0, 0, 0, -1, -1]) as never);
    const ideal = controlFidelities(prepared, exactly, { controls: u.unsqueeze(0), rates: f64([[0, 0]] as never) });
    assertClose(ideal[0]!, 1, { rtol: 1e-10 });
    const idle = controlFidelities(prepared, exactly, {
      controls: u.mul(0).unsqueeze(0),
      rates: f64([[0, 0]] as never),
    });
    assert.ok(idle[0]! < 0.9);
    const lossy = controlFidelities(prepared, exactly, {
      controls: u.unsqueeze(0),
      rates: f64([[0.05, 0.02]] as never),
    });
    assert.ok(lossy[0]! < 0.99 && lossy[0]! > 0.9, `${lossy[0]}`);
    assert.equal(prepared.initial.length, 12);
    assert.equal(prepareProblem(plainProblem(controlledZ({ segments: 6 }))).key, prepared.key);
  });

  test("controlInfidelity and its gradients equal the general Lindblad solver for two driven, decaying qubits", () => {
    // The general solver compiles slowly here; other devices are compared with the reference above.
    if (name !== "reference") return;
    const problem: ControlProblem = {
      drift: pauli("ZZ").scale(0.4).add(pauli("ZI").scale(0.2)),
      controls: [pauli("XI"), pauli("IY")],
      channels: [pauli("ZI").scale(0.5), onSite(sigmaMinus, 1, [2, 2])],
      pairs: [{ initial: densityOf(basisState(4, 1)), target: densityOf(basisState(4, 2)) }],
      segments: 6,
      duration: 2,
    };
    const controls = f64(Array.from({ length: 6 }, (_, k) => [0.8 - 0.1 * k, 0.3 + 0.2 * k]) as never);
    const general = (u: Tensor, g: Tensor): Tensor => {
      const h = hamiltonian({ static: problem.drift!, drives: problem.controls, amplitudes: u });
      const jumps = problem.channels.map((c, k) => ({ operator: c as Operator, rate: g.index(k) }));
      const run = lindblad({ hamiltonian: h, jumps }, problem.pairs[0]!.initial, {
        duration: 2,
        steps: 18,
        method: "rk4",
      });
      return weft.sub(1, run.final.index(2, 2).real());
    };
    const ours = (u: Tensor, g: Tensor): Tensor =>
      controlInfidelity(prepareProblem(problem), { method: "rk4", perSegment: 3 }, u, g);
    const rates = f64([0.3, 0.15]);
    const [a, [au, ag]] = weft.valueAndGrad(general, { argument: [0, 1] })(controls, rates);
    const [b, [bu, bg]] = weft.valueAndGrad(ours, { argument: [0, 1] })(controls, rates);
    assertClose(b, a.itemSync(), { rtol: 1e-13 });
    assertClose(bu!, Array.from(au!.dataSync() as Float64Array), { rtol: 1e-9, atol: 1e-12 });
    assertClose(bg!, Array.from(ag!.dataSync() as Float64Array), { rtol: 1e-9, atol: 1e-12 });
  });

  test("steps are chosen from a tolerance or dt, and explained with their error", () => {
    const prepared = flip(20);
    const probes = defaultProbes(prepared, f64([0.05, 0.025]));
    const loose = chooseSteps(prepared, { tolerance: 1e-5 }, probes);
    assert.deepEqual([loose.method, loose.perSegment, loose.warnings], ["rk4", 1, []]);
    const tight = chooseSteps(prepared, { tolerance: 1e-10 }, probes);
    assert.ok(tight.perSegment > 1 && tight.error <= 1e-10 && tight.precision === "float64");
    // The true error is below the tolerance.
    const pulse = { controls: probes.controls.index("1:2"), rates: probes.rates.index("1:2") };
    const reference = controlFidelities(
      prepared,
      chooseSteps(prepared, { method: "taylor8", tolerance: 1e-14 }, probes),
      pulse,
    );
    assert.ok(Math.abs(controlFidelities(prepared, tight, pulse)[0]! - reference[0]!) < 1e-10);
    // A dt that does not divide the segment gives shorter steps, never longer ones.
    const given = chooseSteps(prepared, { dt: 0.02 }, probes);
    assert.deepEqual([given.perSegment, given.steps], [3, 60]);
    assertClose(given.dt, 0.05 / 3);
    const long = chooseSteps(prepared, { dt: 0.2 }, probes);
    assert.match(
      explainSteps(long, "training"),
      /training: dt = 0.2 -> rk4.*\n {2}warning: dt = 0.2 is longer than a segment/,
    );
    assert.match(explainSteps(tight), /tolerance = 1e-10 -> rk4, .* estimated error of the fidelity \d/);
  });

  test("Euler: fidelities above 1 are errors, and chooseSteps warns before", () => {
    const prepared = flip(20);
    const probes = { controls: constantPulse(20).unsqueeze(0), rates: f64([[0.05, 0.025]] as never) };
    const coarse = chooseSteps(prepared, { method: "euler", dt: 0.025 }, probes);
    assertClose(coarse.error, 0.0627, { rtol: 0.3 });
    assert.match(coarse.warnings.join(), /euler with dt = 0.0250 is off by about \d\.\de-2 in fidelity; rk4/);
    assert.throws(
      () => controlFidelities(prepared, coarse, probes),
      /fidelity 1\.04\d* of task 0 is not in \[0, 1\].*use rk4/,
    );
    assert.throws(() => checkFidelities([0.5, Number.NaN], coarse), /fidelity NaN of task 1/);
    // rk4 with the same step is accurate.
    const fine = chooseSteps(prepared, { dt: 0.025 }, probes);
    assert.deepEqual(fine.warnings, []);
    assertClose(controlFidelities(prepared, { ...fine, precision: "float64" }, probes)[0]!, 0.9784413379, {
      rtol: 1e-7,
    });
    assert.throws(
      () => chooseSteps(prepared, { method: "euler", tolerance: 1e-9 }, probes),
      /euler does not reach tolerance 1e-9/,
    );
  });

  test("measured orders equal the orders of the methods", () => {
    const prepared = flip(4);
    const probes = { controls: weft.full([1, 4, 2], 0.9, { dtype: "float64" }), rates: f64([[0.4, 0.2]] as never) };
    for (const [method, order, from] of [
      ["euler", 1, 64],
      ["midpoint", 2, 32],
      ["rk4", 4, 2],
    ] as const) {
      const ratio =
        halvingError(prepared, { method, perSegment: from }, probes) /
        halvingError(prepared, { method, perSegment: 2 * from }, probes);
      assert.ok(
        Math.log2(ratio) > order - 0.35 && Math.log2(ratio) < order + 1,
        `${method}: order ${Math.log2(ratio)}`,
      );
    }
  });
});

/** Fine steps of high order; their error is far below the tolerances of the tests. */
const exactly: ChosenSteps = {
  method: "taylor8",
  perSegment: 2,
  precision: "float64",
  asked: "",
  dt: 0,
  steps: 0,
  error: 0,
  warnings: [],
};

test("operators that are not Hermitian, states that are not density matrices, and wrong shapes are errors", () => {
  const good = qubitFlip();
  const bad = (change: Partial<ControlProblem>) => () => prepareProblem({ ...good, ...change });
  assert.throws(
    bad({
      controls: [
        [
          [0, 1],
          [0, 0],
        ],
      ],
    }),
    /controls\[0\] is not Hermitian/,
  );
  assert.throws(
    bad({
      drift: [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
      ],
    }),
    /drift is 3x3, the other operators are 2x2/,
  );
  assert.throws(
    bad({ pairs: [{ initial: sigmaX, target: sigmaX }] }),
    /pairs\[0\].initial is not a density matrix.*trace 1/,
  );
  const mixed = [
    [0.5, 0],
    [0, 0.5],
  ];
  assert.throws(bad({ pairs: [{ initial: mixed, target: mixed }] }), /pairs\[0\].target is mixed \(purity 0.5\)/);
  assert.throws(bad({ controls: [] }), /controls is empty/);
  assert.throws(bad({ segments: 0 }), /segments must be a whole number >= 1, got 0/);
  assert.throws(bad({ duration: Number.NaN }), /duration must be above 0, got NaN/);
  assert.throws(bad({ channels: [sigmaZ.scale(Number.NaN)] }), /channels\[0\] holds a number that is not finite/);
  const prepared = prepareProblem(good);
  const steps = { method: "rk4", perSegment: 1 } as const;
  assert.throws(
    () => controlInfidelity(prepared, steps, weft.zeros([2, 60]), weft.zeros([2])),
    /controls must be \[60, 2\].*got \[2,60\]/,
  );
  assert.throws(() => controlInfidelity(prepared, steps, weft.zeros([60, 2]), weft.zeros([3])), /rates must be \[2\]/);
  assert.throws(
    () => chooseSteps(prepared, { method: "rk5" as StepMethod, dt: 1 }, defaultProbes(prepared, weft.zeros([2]))),
    /no method "rk5"/,
  );
});
