// TensorFlow.js as a peer of the CPU suite: the fastest of the backends that work here (tfjs-node if it was installed with
// its install script, WebAssembly, plain JavaScript).
import * as tf from "@tensorflow/tfjs";
import { LocalContestant, serveContestant } from "../dist/suites/contestant.js";
import * as data from "../dist/suites/inputs.js";

const tried = {};
async function available() {
  const names = ["cpu"];
  try {
    await import("@tensorflow/tfjs-node");
    names.push("tensorflow");
  } catch (error) {
    tried.tensorflow = String(error.message).split("\n")[0].slice(0, 120);
  }
  try {
    const wasm = await import("@tensorflow/tfjs-backend-wasm");
    wasm.setWasmPaths(`${import.meta.dirname}/node_modules/@tensorflow/tfjs-backend-wasm/dist/`);
    names.push("wasm");
  } catch (error) {
    tried.wasm = String(error.message).split("\n")[0];
  }
  return names;
}

function makeStep() {
  const layers = data
    .mlpParameters()
    .map(({ out, inputs, weight, bias }) => ({
      weight: tf.variable(tf.tensor2d(weight, [out, inputs])),
      bias: tf.variable(tf.tensor1d(bias)),
    }));
  const { x, y } = data.mlpBatch();
  const input = tf.tensor2d(x, [data.mlpSize.batch, 784]);
  const labels = tf.oneHot(tf.tensor1d(y, "int32"), 10).toFloat();
  const optimizer = tf.train.adam(1e-3, 0.9, 0.999, 1e-8);
  const loss = () => {
    const logits = layers.reduce((h, { weight, bias }, i) => {
      const out = tf.matMul(h, weight, false, true).add(bias);
      return i < layers.length - 1 ? out.relu() : out;
    }, input);
    return tf.losses.softmaxCrossEntropy(labels, logits);
  };
  return () => {
    const cost = optimizer.minimize(loss, true);
    const value = cost.dataSync()[0];
    cost.dispose();
    return value;
  };
}

async function mlp() {
  let best = null;
  for (const name of await available()) {
    try {
      await tf.setBackend(name);
      await tf.ready();
      const call = makeStep();
      const check = Array.from({ length: 5 }, call);
      const start = performance.now();
      call();
      tried[name] = performance.now() - start;
      if (best === null || tried[name] < tried[best.name]) best = { name, call, check };
    } catch (error) {
      tried[name] = String(error.message).split("\n")[0];
    }
  }
  await tf.setBackend(best.name);
  return { call: best.call, check: best.check, info: { backend: best.name, tried } };
}

await serveContestant(new LocalContestant({ mlp }, { tfjs: tf.version_core }));
