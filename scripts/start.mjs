// `npm start`: sets everything up, builds, trains a small network for some seconds and says where to read on.
import { join } from "node:path";
import { root, setup, sh } from "./setup.mjs";

setup();
const built = sh(process.execPath, [join(root, "scripts/build.mjs")]);
if (built !== 0) process.exit(built);

const weft = await import("@weft/core");
const { showProgress, train } = await import("../examples/digits.mjs");
const { device } = weft.session();
console.log(
  `Training a 784-128-10 network on drawn digits (device ${device.name}; WEFT_DEVICE chooses another, WEFT_DEBUG=2 shows the kernels) ...`,
);
// The reference device is for checking, not for training.
const steps = device.kind === "reference" ? 20 : 500;
const { accuracy } = train({ steps, onStep: showProgress });
console.log(`Accuracy on 1000 held-out digits: ${(accuracy * 100).toFixed(1)}%

How products scale over the devices of this machine (weft bench --quick):
`);
sh(process.execPath, [join(root, "packages/cli/bin/weft.js"), "bench", "--quick", "--out", join(root, "bench-report")]);
console.log(`
Read on:
  bench-report/bench.html the benchmark that just ran, with pictures
  README.md               what Weft is, and the program you just ran in short
  examples/digits.mjs     that program
  docs/                   functions, tensors, gradients, performance, the scaling lab
  npx weft doctor         what this machine has and lacks, and what that costs
  npx weft --help         the scaling lab's commands
  npm test                the whole test suite`);
