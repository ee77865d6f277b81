// One cold start: the time from the first call of the transformer step to its first loss, in a process of its own, with
// the kernel cache of WEFT_CACHE_DIR. Imports and uploads are not counted; starting the device is reported apart.
const before = performance.now();
const { transformerStep } = await import("./transformer.mjs");
const imported = performance.now();
const { step, params, state, batch } = transformerStep();
const start = performance.now();
const [, , loss] = step(params, state, ...batch);
const value = loss.itemSync();
const end = performance.now();
const { session } = await import("@weft/core");
console.log(
  JSON.stringify({
    loss: value,
    firstResultMs: end - start,
    peakBytes: session().device.memory().peakBytes,
    importMs: imported - before,
    deviceAndDataMs: start - imported,
  }),
);
