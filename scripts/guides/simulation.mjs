// Rows of the guide on differentiable quantum simulation over several GPUs.

const profile =
  "weft quantum profile examples/profile-chain/small.yaml --devices 1 2 --repeats 2 --patterns states time tasks both";
const quantum = `import * as weft from "@weft/core";
import * as quantum from "@weft/quantum";
`;
/** A flip of a qubit in its rotating frame. */
const gate = (evolution) => `device: {parts: {q: {kind: qubit, frequency: 0}}}
pulses:
  - {on: q, name: x, operator: x, shape: piecewise, length: 1, values: [1.5, 1.6, 1.5, 1.55]}
evolution: ${evolution}
target: {gate: X, compensation: virtual-z}
learn: [q.x.values]
`;
/** A driven qubit and its propagator with the given options. */
const evolve = (lines) => `${quantum}const amplitudes = (t) => t.mul(3).sin().unsqueeze(1);
const h = quantum.hamiltonian({ static: quantum.sigmaZ.scale(0.5), drives: [quantum.sigmaX], amplitudes });
const plain = quantum.propagator(h, { duration: 2, steps: 400 }).final;
${lines}
`;
const cluster = `import { connect } from "@weft/cluster";
import * as weft from "@weft/core";
const cluster = await connect({ devices: 2, calibrate: false, mesh: { batch: 2 } });
`;

export const simulation = {
  title: "Differentiable quantum simulation",
  file: "supergrad-multi-gpu.md",
  files: {
    "gate.yaml": gate("{steps: 60}"),
    "adaptive.yaml": gate("{tolerance: 1.0e-8, maxSteps: 2000}"),
    "jaxjob.py": `import jax, jax.numpy as jnp
f = jax.jit(lambda x: (x @ x).sum())
x = jnp.ones((256, 256))
f(x).block_until_ready()
with jax.profiler.trace("profile"):
    for _ in range(3):
        f(x).block_until_ready()
`,
  },
  sections: [
    {
      title: "Potential bottlenecks",
      rows: [
        {
          ask: "Sharding along one axis only",
          type: "`weft quantum profile --patterns states time both`",
          run: profile,
          seconds: 300,
          shows: [/^(both +2 .*)/, /^(automatic +2 .*)/],
          says: "columns, pieces of time, both, tasks, and the planner's own choice",
        },
        {
          ask: "Intermediate results are not sharded",
          type: "`cluster.device.explain()`",
          program: `${cluster}const f = weft.jit((x, w) => x.matmul(w).tanh().matmul(w).sum());
await f(weft.shard(weft.randn([2048, 512]), { 0: "batch" }), weft.randn([512, 512])).item();
console.log(cluster.device.explain());
await cluster.close();
`,
          shows: [/^(Split at the start: .*)/],
          says: "placements of inputs, intermediates and results, with what moves",
        },
        {
          ask: "Time evolution is serial",
          type: "pattern `time`; `chunks` of an evolution",
          run: profile,
          seconds: 300,
          shows: [/^(time +2 .*)/],
          says: "pieces of time run in parallel and their propagators are multiplied",
        },
        {
          ask: "Matrix exponentials",
          type: "methods `pwcExpm`, `trotter2`, `krylov` ([solvers](quantum.md#solvers))",
          run: "for method in pwcExpm trotter2 krylov; do weft quantum run gate.yaml --set evolution.method=$method --json | grep -E '\"(method|infidelity)\"'; done",
          shows: [/("method": "pwcExpm.*)/, /("method": "trotter2.*)/, /("method": "krylov.*)/],
        },
        {
          ask: "Custom VJP with serial parts",
          type: "`--set evolution.gradient=reversal`",
          run: "weft quantum run examples/profile-chain/small.yaml --set evolution.gradient=reversal",
          shows: [/(.*infidelity.*)/i],
          says: "state and cotangent run backwards in one kernel per column",
        },
        {
          ask: "Transfers between devices",
          type: "component `transfers` of `weft quantum profile`, `moved` in `weft top`",
          run: profile,
          seconds: 300,
          shows: [/^(transfers .*)/],
        },
        {
          ask: "Compilation for several devices",
          type: "column `compile` of `weft quantum profile`",
          run: profile,
          seconds: 300,
          shows: [/^(component +devices +steady +compile.*)/],
          says: "reported apart from steady times; programs are cached on disk",
        },
        {
          ask: "Serial initialization of the system",
          type: "component `eigen-solve` of `weft quantum profile`",
          run: profile,
          seconds: 300,
          shows: [/^(eigen-solve +2 .*)/],
          says: "ranked with the others ([example](../examples/profile-chain/README.md))",
        },
      ],
    },
    {
      title: "Phase 1: profiling",
      rows: [
        {
          ask: "Time of each component",
          type: "`weft quantum profile gate.yaml --devices 1 2`",
          run: profile,
          seconds: 300,
          shows: [/^(evolution and gradient +1 .*)/],
        },
        {
          ask: "GPU utilization over devices",
          type: "`weft top`, `weft ui`; `weft scale` samples `nvidia-smi`",
          run: "weft doctor --no-measure",
          shows: [/^(CUDA +.*)/],
          says: "utilization appears where a GPU is",
          state: "needs hardware",
        },
        {
          ask: "Memory and transfers",
          type: "columns `bytes` and `memory held` of the profile",
          run: profile,
          seconds: 300,
          shows: [/^(pattern +devices +one call +speedup +memory held.*)/],
        },
        {
          ask: "One, two, four and eight GPUs: speedup and efficiency",
          type: "`weft quantum profile --devices 1 2`",
          run: profile,
          seconds: 300,
          shows: [/^(2 devices: .*efficiency.*)/],
          says: "with two cores; eight GPUs were not available",
          state: "needs hardware",
        },
        {
          ask: "Which component does not scale",
          type: "the first line of `weft quantum profile`",
          run: profile,
          seconds: 300,
          shows: [/^(.*(?:does not scale|gets slower|scales to|cannot say which).*)/],
          says: "components ranked by the time that perfect scaling would save",
        },
        {
          ask: "JAX traces",
          type: "`jax.profiler.trace(...)`, then `weft trace profile/`",
          run: '"$JAX_PYTHON" jaxjob.py && weft trace profile/',
          needs: ["jax"],
          shows: [/^(rank .*)/, /^(0 .*)/],
        },
      ],
    },
    {
      title: "Phase 2: components",
      rows: [
        {
          ask: "Parallel time steps",
          type: "`chunks: 8`",
          program: evolve(`const split = quantum.propagator(h, { duration: 2, steps: 400, chunks: 8 }).final;
console.log("largest difference", split.sub(plain).abs().max().itemSync());`),
          shows: [/(largest difference [\de.-]+)/],
          says: "against the unsplit evolution",
        },
        {
          ask: "Other ODE solvers",
          type: "`--set evolution.method=tsit5`, `dopri8`, `rk4`, `trotter4` …",
          run: "for method in tsit5 dopri8; do weft quantum run adaptive.yaml --set evolution.method=$method --json | grep -E '\"method\"'; done; for method in rk4 trotter4; do weft quantum run gate.yaml --set evolution.method=$method --json | grep -E '\"method\"'; done",
          shows: [/("method": "tsit5.*)/, /("method": "dopri8.*)/, /("method": "rk4.*)/],
        },
        {
          ask: "Shard Hamiltonian and states",
          type: '`divide: { columns: "states", pieces: "time" }`',
          run: profile,
          seconds: 300,
          shows: [/^(states +2 .*)/],
          says: "constraints along mesh axes; results equal the unsharded ones (tested)",
        },
        {
          ask: "Hamiltonian construction in parallel",
          type: "nothing: parts of equal structure are solved as one batch",
          run: profile,
          seconds: 300,
          shows: [/^(system build +2 .*)/],
        },
        {
          ask: "Distributed eigenvalues",
          type: "nothing: a batch of parts is divided over workers",
          run: profile,
          seconds: 300,
          shows: [/^(eigen-solve +1 .*)/],
          says: "one large matrix is not divided",
          state: "partly",
        },
        {
          ask: "Parameter sharing",
          type: "`device.shared`",
          run: "weft quantum run examples/quantum/chain-x.yaml --json --set evolution.steps=500 | head -c 4000",
          shows: [/("?infidelity"?.*)/],
          says: "one gradient for all that share",
          seconds: 240,
        },
        {
          ask: "Fewer transfers, buffers in place",
          type: "`jit(f, { donate: [0] })`, `weft.memory()`",
          program: `import * as weft from "@weft/core";
const f = weft.jit((x) => x.mul(2), { donate: [0] });
let x = weft.ones([1000, 1000]);
for (let k = 0; k < 3; k++) x = f(x);
await x.data();
console.log("bytes held", weft.memory().bytes ?? weft.memory().usedBytes);
`,
          shows: [/(bytes held \d+)/],
          says: "one buffer of 4 MB, reused by every call",
        },
      ],
    },
    {
      title: "Phase 3: advanced",
      rows: [
        {
          ask: "Mesh of two dimensions (2 x 4)",
          type: "`connect({ devices: 8, mesh: { batch: 2, model: 4 } })`; here `mesh: { batch: 2 }`",
          program: `${cluster}const x = weft.shard(weft.randn([13000, 64]), { 0: "batch" });
await x.realize().sum().item();
console.log(weft.debug.sharding(x));
await cluster.close();
`,
          shows: [/^(\[13000, 64\] as .*)/],
        },
        {
          ask: "Parallel VJPs",
          type: "`grad` under any sharding",
          program: `${cluster}const loss = (w, x) => x.matmul(w).square().mean();
const g = weft.jit(weft.grad(loss));
await g(weft.ones([64, 8]), weft.shard(weft.randn([4096, 64]), { 0: "batch" })).data();
console.log(cluster.device.explain());
await cluster.close();
`,
          shows: [/^(allReduce .*)/],
          says: "one sum of the gradient",
        },
        {
          ask: "Adjoint methods",
          type: "`gradient: reversal`, `checkpointed`, `stored`",
          run: "for gradient in stored checkpointed; do weft quantum run gate.yaml --set evolution.method=rk4 evolution.gradient=$gradient --json | grep '\"infidelity\"'; done",
          shows: [/("infidelity".*)/],
          says: "memory independent of the number of steps with `reversal`",
        },
        {
          ask: "Overlap of computation and communication",
          type: "nothing: collectives start when their operand is ready",
          run: "weft train configs/synthetic.yaml --devices 2 --max-steps 3 --out runs/overlap && grep -ho '\"exposedCommUs\":[0-9.]*' runs/overlap/rank0.jsonl | tail -1",
          shows: [/^("exposedCommUs":[\d.]+)/],
          says: "what remained exposed, in microseconds",
        },
        {
          ask: "Asynchronous calls, prefetching",
          type: "calls before the first `await`; `data.prefetch`",
          program: `import * as weft from "@weft/core";
const f = weft.jit((x) => x.add(1));
let x = weft.zeros([4]);
const calls = Array.from({ length: 100 }, () => (x = f(x)));
console.log(calls.length, "calls, then one wait:", (await x.array())[0]);
`,
          shows: [/(100 calls, then one wait: 100)/],
        },
      ],
    },
    {
      title: "Immediate actions",
      rows: [
        {
          ask: "`jax.debug.visualize_array_sharding`",
          type: "`weft.debug.sharding(x)`",
          program: `${cluster}const x = weft.shard(weft.randn([13000, 64]), { 0: "batch" });
await x.realize().sum().item();
console.log(weft.debug.sharding(x));
await cluster.close();
`,
          shows: [/^(\[13000, 64\] as .*)/, /^(0\.\.6499.*)/],
        },
        {
          ask: "`jax.debug.print`",
          type: '`weft.debug.print(x, "label")`',
          program: `import * as weft from "@weft/core";
const f = weft.jit((x) => weft.debug.print(x.mul(2), "twice").sum());
console.log(f(weft.tensor([1, 2])).itemSync());
`,
          shows: [/(twice: float32\[2\] \[2, 4\])/],
          says: "also inside `jit`, `vmap` and `scan`",
        },
        {
          ask: "Try sharding patterns",
          type: "`weft quantum profile --patterns states time tasks both`",
          run: profile,
          seconds: 300,
          shows: [/^(choice: .*)/, /^(planner: .*)/],
        },
        {
          ask: "GPUtil",
          type: "`weft top --once --json`",
          run: `weft server -p 9462 --insecure > top.log 2>&1 &
weft worker --cores 1 -p 9462 --insecure > topworker.log 2>&1 &
until grep -q works topworker.log; do sleep 0.2; done
weft top --server localhost:9462 --insecure --once --json`,
          shows: [/("state":"ready")/],
          says: "for scripts",
        },
      ],
    },
    {
      title: "Expected outcomes",
      rows: [
        {
          ask: "Two to three times on eight GPUs, then four to five, then six to seven",
          type: "`npm run bench -- quantum-workers`; here `weft quantum profile --devices 1 2`",
          run: profile,
          seconds: 300,
          shows: [/^(2 devices: .*efficiency.*)/],
          says: "eight GPUs were not available; eight CPU workers are in [performance](performance.md)",
          state: "needs hardware",
        },
        {
          ask: "Sharding that adapts to the size",
          type: "nothing: the planner decides per program",
          run: "node small.mjs",
          shows: [/^(one worker.*)/],
          says: '"do not shard" is an answer',
        },
        {
          ask: "Automated tuning",
          type: "`weft quantum tune gate.yaml`; `weft tune` for trainings",
          run: "weft quantum tune gate.yaml",
          shows: [/^(evolution: .*)/],
          says: "method, steps and pieces of time chosen by measurement",
          seconds: 240,
        },
      ],
    },
  ],
};
