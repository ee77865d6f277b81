// The meta-training that bench/meta.mjs --training records: 2,000 iterations on the published tasks, with validation, an
// adaptation curve of 20 steps and the baselines. Prints one JSON object.
import * as weft from "../../packages/core/dist/index.js";
import * as quantum from "../../packages/quantum/dist/index.js";

const trainer = new quantum.MetaTrainer({ iterations: 2000, validation: { tasks: 100, every: 100 } });
const compileStart = performance.now();
const kernels = trainer.kernels().length;
const compileSeconds = (performance.now() - compileStart) / 1e3;
const start = performance.now();
trainer.run({
  onProgress: (t, validation) => {
    if (validation !== null) process.stderr.write(`bench: iteration ${t.iteration}: ${validation.after.toFixed(6)}\n`);
  },
});
const seconds = (performance.now() - start) / 1e3;
const fresh = quantum.drawTasks(trainer.config.tasks, weft.key(424242), 60);
const curves = trainer.curves(fresh, 20);
const result = {
  device: weft.session().device.name,
  iterations: trainer.iteration,
  seconds,
  compileSeconds,
  kernels,
  final: trainer.validations.at(-1),
  validations: trainer.validations,
  losses: trainer.metrics.filter((m) => m.iteration % 20 === 0 || m.iteration <= 10),
  adaptation: Array.from({ length: 21 }, (_, k) => curves.reduce((s, c) => s + c[k], 0) / curves.length),
  baselines: quantum.compareBaselines(trainer, { randomized: 2000 }),
  explain: trainer.explain().split("\n"),
  cache: quantum.cacheStats(),
};
process.stdout.write(`${JSON.stringify(result)}\n`);
