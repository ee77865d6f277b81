// Attention that users write by hand, on a real GPU: the kernels that were chosen, and their values and gradients against the
// reference device. What is chosen is tested everywhere (recognize.test.ts); a program takes NVRTC seconds, so every third
// form runs here, and WEFT_TEST_EVERY=1 runs them all.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import { assertClose, differentiated, recognitionCases } from "./recognize.testkit.js";

const skip = weft.CudaDevice.available() ? false : "no GPU";
const every = Number(process.env.WEFT_TEST_EVERY ?? 3);
/** The reference device computes all products exactly; the GPU rounds their operands to eleven bits where it is asked to. */
const tf32 = 5e-3;
const device = skip === false ? new weft.CudaDevice() : null;

Object.entries(recognitionCases).forEach(([name, form], i) => {
  if (i % every !== 0) return;
  test(`on cuda: ${name}`, { skip }, () => {
    const { results, kernels } = differentiated(form, device!);
    const tolerance = Math.max(form.tolerance ?? 1e-4, name === "tf32" ? tf32 : 0);
    assertClose(results, differentiated(form, new weft.ReferenceDevice()).results, tolerance);
    const fused = kernels.filter((kernel) => kernel.startsWith("attention"));
    assert.ok(
      fused.some((kernel) => kernel.startsWith("attentionGradient")) && fused.length >= 2,
      `kernels: ${kernels.join(", ")}`,
    );
  });
});
