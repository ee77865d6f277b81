// `npm start`: sets everything up, builds, and shows in half a minute what Weft does: a training, a verified gate with its
// picture, and a verdict on a published scaling study. On a terminal it then offers the app in the browser.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join, relative } from "node:path";
import { createInterface } from "node:readline/promises";
import { root, setup, sh } from "./setup.mjs";

setup();
console.log("weft: building ...");
const built = sh(process.execPath, [join(root, "scripts/build.mjs")]);
if (built !== 0) process.exit(built);

const start = performance.now();
const weftCommand = join(root, "packages/cli/bin/weft.js");
const runs = join(root, "runs");
const isTerminal = process.stdin.isTTY && process.stdout.isTTY;
const heading = (text) => console.log(`\n${process.stdout.isTTY ? `\u001b[1m${text}\u001b[0m` : text}`);

/** Trains a network on drawn digits and returns the share of correct answers on digits that it has not seen. */
async function trainDigits() {
  const weft = await import("@weft/core");
  const { load } = await import("@weft/core/io");
  const { exportRun, train } = await import("@weft/train");
  const { makeDigits, model } = await import("../examples/digits.mjs");
  const { device } = weft.session();
  heading(`1. Train a network on drawn digits (device ${device.name})`);
  const [known, held] = [makeDigits(4096, 1), makeDigits(1000, 2)];
  const output = join(runs, `digits-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}`);
  const { losses } = await train(
    {
      name: "digits",
      model,
      loss: (params, { images, labels }) => weft.crossEntropy(model.apply(params, images), labels),
      data: known,
      // The reference device is for checking, not for training.
      training: { epochs: device.kind === "reference" ? 1 : 12, global_batch: 128 },
      optimizer: { learning_rate: 2e-3 },
      output,
    },
    {
      onStep: ({ step, steps, loss, samplesPerSecond }) => {
        const text = `   step ${step}/${steps}   loss ${loss.toFixed(3)}   ${samplesPerSecond.toFixed(0)} images/s`;
        if (process.stdout.isTTY) process.stdout.write(`\r\u001b[2K${text}${step === steps ? "\n" : ""}`);
        else if (step % 100 === 0) console.log(text);
      },
    },
  );
  const folder = join(output, "exported");
  await exportRun(output, folder);
  const saved = await load(join(folder, "model.safetensors"));
  const layer = (name) => ({ weight: saved[`${name}.weight`], bias: saved[`${name}.bias`] });
  const logits = model.apply({ hidden: layer("hidden"), out: layer("out") }, held.images);
  const accuracy = await logits.argmax(-1).equal(held.labels).cast("float32").mean().item();
  console.log(
    `   loss ${losses[0].toFixed(2)} -> ${losses.at(-1).toFixed(3)}; ${(accuracy * 100).toFixed(1)}% of 1000 digits that it has not seen`,
  );
}

/** Runs a program of the examples; its lines are indented. */
function example(name, ...args) {
  const done = spawnSync(process.execPath, [join(root, "examples", name, "program.mjs"), ...args], {
    cwd: root,
    encoding: "utf8",
  });
  process.stdout.write(`${done.stdout}${done.stderr}`.replaceAll(/^(?=.)/gm, "   "));
}

/** The lab's verdict on measurements that were published with a guide: it does not depend on how busy this machine is. */
function verdict() {
  heading("3. Judge a published scaling study: is the AG News job slower on four GPUs, as its guide says?");
  const study = join(root, "packages/lab/testdata/ddp_experiments");
  if (!existsSync(study)) return;
  const done = spawnSync(process.execPath, [weftCommand, "analyze", study, "--no-pictures", "--no-ledger", "--json"], {
    encoding: "utf8",
    cwd: root,
  });
  const { studies } = JSON.parse(done.stdout);
  for (const { name, valid, scaling, findings } of studies) {
    const last = scaling.at(-1);
    if (valid) console.log(`   ${name}: valid, ${last.speedup.toFixed(2)}x on ${last.devices} devices`);
    else {
      console.log(`   ${name}: not valid. ${findings[0].title}. ${findings[0].cause}`);
      for (const { text, likelihood } of last.readings)
        console.log(`   ${" ".repeat(name.length)}  ${(100 * likelihood).toFixed(0)}%: ${text}`);
    }
  }
}

await trainDigits();
heading("2. Optimize a quantum gate by gradients through its evolution");
example("grape", "--small", "--out", join(runs, "start"));
verdict();
heading(`Done in ${((performance.now() - start) / 1e3).toFixed(0)} s. What to type next`);
console.log(`  npx weft ui                                        your runs in the browser, live
  npx weft init                                      files for a job of your own, by a few questions
  npx weft doctor                                    what this machine has and lacks
  npx weft bench --quick                             how products scale over the devices of this machine
  npx weft scale --devices 1,2 -- python train.py    how your own job scales, and why not better
  npx weft --help                                    all commands
  examples/README.md                                 ten programs with their pictures
  ${relative(process.cwd(), join(runs, "start/pulses.svg"))}                              the pulses of the gate`);
if (isTerminal) {
  const line = createInterface({ input: process.stdin, output: process.stdout });
  const answer = await line.question("\nOpen the runs in the browser now (weft ui)? [Y/n] ");
  line.close();
  if (!/^n/i.test(answer.trim())) process.exit(sh(process.execPath, [weftCommand, "ui", runs]));
}
