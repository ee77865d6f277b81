// Weft as a contestant of bench/meta.mjs.
import { metaWork } from "../lib/meta-work.mjs";
import { serve } from "../lib/serve.mjs";

const engine = {
  weft: await import("../../packages/core/dist/index.js"),
  quantum: await import("../../packages/quantum/dist/index.js"),
  optim: await import("../../packages/core/dist/optim/index.js"),
};
const { w1, w2, w3 } = metaWork(engine);
await serve(
  {
    "w1-16": async () => w1(16),
    "w1-4096": async () => w1(4096),
    "w3-16": async () => w3(16),
    "w2-32": async () => w2(32),
    "w2-32-second-order": async () => w2(32, 2),
  },
  { name: "weft 0.1.0", device: engine.weft.session().device.name },
);
