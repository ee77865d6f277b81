// Rows of the guide on meta-learned quantum control.

const quantum = `import * as weft from "@weft/core";
import * as quantum from "@weft/quantum";
`;
const trainer = `${quantum}const trainer = new quantum.MetaTrainer({ preset: "debug", iterations: 6 });
trainer.run();
`;
const debug = "weft quantum meta --preset debug --iterations 30 --out runs/debug";
const explain = (file) => `weft quantum meta ${file} --explain`;

export const metaControl = {
  title: "Meta-learned control",
  file: "metaqctrl-gpu.md",
  files: {
    "original.yaml": "tasks_per_batch: 200\nval_tasks: 100\ninner_steps: 10\n",
    "fast.yaml": "tasks_per_batch: 16\nval_tasks: 20\ninner_steps: 5\ndt_training: 0.02\nuse_rk4_training: false\n",
    "accurate.yaml": "dt_training: 0.01\nuse_rk4_training: true\ntasks_per_batch: 8-16\ninner_steps: 10\n",
    "fine.yaml": "preset: debug\nintegration: {evaluation: {dt: 0.005, method: rk4}}\n",
    "tolerance.yaml": "preset: debug\nintegration: {training: {tolerance: 1.0e-5}}\n",
  },
  sections: [
    {
      title: "Problems and fixes",
      rows: [
        {
          ask: "The simulator is recreated on every loss call",
          type: "nothing: programs are cached by structure; `weft quantum bench` shows what that saves",
          run: "weft quantum bench",
          shows: [/^(rebuilt on every call .*)/, /^(compiled once .*)/],
        },
        {
          ask: "Too many time steps",
          type: "`integration: { training: { tolerance: 1.0e-5 } }`",
          run: explain("tolerance.yaml"),
          shows: [/^(training: .*)/],
          says: "steps are chosen by the error",
        },
        {
          ask: "Tiny matrices do not suit a GPU",
          type: "nothing: lane kernels carry one problem per thread, with the time loop inside ([lanes](lanes.md))",
          run: "weft quantum bench",
          shows: [/^(batched .*)/],
        },
        {
          ask: "Tasks one after the other",
          type: "nothing: a batch of evolutions with its gradient is one kernel",
          run: explain("original.yaml"),
          shows: [/(one iteration: 200 tasks.*)/],
        },
        {
          ask: "`get_torch_simulator()` caches",
          type: "`cacheStats()`",
          program: `${trainer}console.log("caches", JSON.stringify(quantum.cacheStats()).slice(0, 140));
`,
          shows: [/^(caches .*)/],
        },
        {
          ask: "`dt_training`, `use_rk4_training` in the configuration",
          type: "the guide's file in `weft quantum meta fast.yaml --explain`",
          run: explain("fast.yaml"),
          shows: [/(dt_training: 0\.02 -> .*)/, /(.*fidelity.*)/],
          says: "Euler's error is reported",
        },
        {
          ask: "`BatchedLossComputation`",
          type: "`grapeEach(problem, rates)`, `MetaTrainer`",
          program: `${quantum}const flip = quantum.prepareProblem(quantum.qubitFlip({ segments: 60, duration: 1 }));
const { rates } = quantum.drawTasks(quantum.gammaTasks, weft.key(1), 4);
const best = quantum.grapeEach(flip, rates, { iterations: 40 });
console.log("infidelities", best.infidelities.map((x) => x.toFixed(3)).join(" "));
`,
          shows: [/^(infidelities .*)/],
          says: "all tasks in one program",
        },
      ],
    },
    {
      title: "Quick start",
      rows: [
        {
          ask: "A benchmark of the improvements",
          run: "weft quantum bench",
          shows: [/^(batched .*)/],
          says: "and a GPU row where there is one",
        },
        {
          ask: "Train with the fast configuration",
          type: "`weft quantum meta --preset training`; here with few iterations",
          run: "weft quantum meta --preset training --iterations 10 --out runs/training && ls runs/training | tr '\\n' ' '",
          shows: [/(.*iterations of .* tasks in .*)/, /(.*checkpoint\.safetensors.*)/],
          seconds: 240,
        },
        {
          ask: "Compare with the original configuration",
          type: "both files with `--out`, then `weft compare`",
          run: "weft quantum meta original.yaml --iterations 3 --out runs/original && weft quantum meta fast.yaml --iterations 3 --out runs/fast && weft compare runs/original runs/fast",
          shows: [/^(runs\/fast .*)/],
          seconds: 300,
        },
      ],
    },
    {
      title: "Configuration comparison",
      rows: [
        {
          ask: "`tasks_per_batch: 200`, `val_tasks: 100`, `inner_steps: 10`",
          type: "the guide's keys, or `batch`, `validation.tasks`, `inner.steps`",
          run: explain("original.yaml"),
          shows: [/(tasks_per_batch: 200 -> .*)/, /(val_tasks: 100 -> .*)/, /(inner_steps: 10 -> .*)/],
          says: "200 tasks are one batch",
        },
        {
          ask: "Speed first: `dt` 0.02, Euler, 16 tasks",
          type: "`weft quantum meta fast.yaml --explain`",
          run: explain("fast.yaml"),
          shows: [/(training: dt = 0\.02 -> euler.*)/],
          says: "accepted with a warning: a reported fidelity could exceed 1, which is an error",
        },
        {
          ask: "Time per iteration of each setting",
          type: "printed at the end of `weft quantum meta`",
          run: debug,
          shows: [/(30 iterations of \d+ tasks in .*)/],
        },
      ],
    },
    {
      title: "Tuning guide",
      rows: [
        {
          ask: "Settings for training",
          run: "weft quantum meta --preset training --explain",
          shows: [/(one iteration: 32 tasks, 5 steps.*)/],
        },
        {
          ask: "Settings for evaluation",
          run: "weft quantum meta --preset evaluation --explain",
          shows: [/^(evaluation: .*)/],
        },
        {
          ask: "Settings for debugging",
          run: debug,
          type: "`weft quantum meta --preset debug`",
          shows: [/(30 iterations of \d+ tasks in .*)/],
        },
        {
          ask: "`n_iterations: 50`",
          type: "`--iterations 50`, or the guide's key",
          run: "weft quantum meta --preset debug --iterations 50",
          shows: [/(50 iterations of .*)/],
        },
        {
          ask: "`dt` and `use_rk4` in a call of one's own",
          type: "`controlInfidelity(problem, steps, controls, rates)` with `chooseSteps`",
          program: `${quantum}const flip = quantum.prepareProblem(quantum.qubitFlip({ segments: 60, duration: 1 }));
const { rates } = quantum.drawTasks(quantum.gammaTasks, weft.key(1), 1);
const controls = weft.ones([60, 2]).mul(1.1);
const steps = quantum.chooseSteps(flip, { dt: 0.01, method: "rk4" }, { controls: controls.unsqueeze(0), rates });
console.log("infidelity", quantum.controlInfidelity(flip, steps, controls, rates.index(0)).itemSync().toFixed(4));
console.log(quantum.explainSteps(steps));
`,
          shows: [/^(infidelity [\d.]+)/, /(estimated error of the fidelity .*)/],
          says: "a step per call",
        },
      ],
    },
    {
      title: "Monitoring, why it was slow",
      rows: [
        {
          ask: "`env.get_cache_stats()`",
          type: "`cacheStats()`; last line of `weft quantum meta`",
          run: debug,
          shows: [/^(cache: .*)/],
        },
        {
          ask: "A cache that stays at 0 is not used",
          type: "`hits` of `cacheStats()`",
          run: debug,
          shows: [/(\d+ hits)/],
          says: "new tasks hit the caches: values are not part of the key",
        },
      ],
    },
    {
      title: "Troubleshooting",
      rows: [
        {
          ask: "Watch the GPU",
          type: "`weft top`, `weft ui`, `weft scale`",
          run: "weft doctor --no-measure",
          shows: [/^(CUDA +.*)/],
          state: "needs hardware",
        },
        {
          ask: "Profile the code",
          type: "`weft tape stats run.tape`, `weft quantum profile`",
          run: "WEFT_TAPE=profile.tape node wide.mjs > profile.log && weft tape stats profile.tape",
          shows: [/^(\d+ runs of \d+ programs.*)/],
        },
        {
          ask: "Accuracy: evaluate with finer steps",
          type: "`integration: { evaluation: { dt: 0.005, method: rk4 } }`",
          run: explain("fine.yaml"),
          shows: [/^(evaluation: .*)/],
          says: "training and evaluation have separate steps",
        },
      ],
    },
  ],
};
