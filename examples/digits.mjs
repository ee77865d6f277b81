// Trains a small network on synthetic digits: seven-segment strokes with random position, scale, slant and noise.
// Run it with `node examples/digits.mjs` after `npm run build`; `npm start` trains the same network.
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";

const size = 28;
// Strokes of a seven-segment display as lines [x0, y0, x1, y1] in the unit square, and the strokes of each digit.
const strokes = {
  top: [0, 0, 1, 0],
  upperLeft: [0, 0, 0, 0.5],
  upperRight: [1, 0, 1, 0.5],
  middle: [0, 0.5, 1, 0.5],
  lowerLeft: [0, 0.5, 0, 1],
  lowerRight: [1, 0.5, 1, 1],
  bottom: [0, 1, 1, 1],
};
const shapes = [
  ["top", "upperLeft", "upperRight", "lowerLeft", "lowerRight", "bottom"],
  ["upperRight", "lowerRight"],
  ["top", "upperRight", "middle", "lowerLeft", "bottom"],
  ["top", "upperRight", "middle", "lowerRight", "bottom"],
  ["upperLeft", "upperRight", "middle", "lowerRight"],
  ["top", "upperLeft", "middle", "lowerRight", "bottom"],
  ["top", "upperLeft", "middle", "lowerLeft", "lowerRight", "bottom"],
  ["top", "upperRight", "lowerRight"],
  ["top", "upperLeft", "upperRight", "middle", "lowerLeft", "lowerRight", "bottom"],
  ["top", "upperLeft", "upperRight", "middle", "lowerRight", "bottom"],
];

/** Returns a generator of pseudorandom numbers in [0, 1). */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d);
    mixed ^= mixed >>> 12;
    return (mixed >>> 0) / 2 ** 32;
  };
}

/** Draws a digit into an image and adds noise. */
function draw(image, digit, random) {
  const width = 9 + 6 * random();
  const height = 13 + 8 * random();
  const left = (size - width) * (0.25 + 0.5 * random());
  const top = (size - height) * (0.25 + 0.5 * random());
  const slant = 4 * (random() - 0.5);
  for (const name of shapes[digit]) {
    const [x0, y0, x1, y1] = strokes[name];
    for (let t = 0; t <= 1; t += 0.04) {
      const v = y0 + (y1 - y0) * t;
      const x = left + width * (x0 + (x1 - x0) * t) + slant * (0.5 - v);
      const y = top + height * v;
      for (let row = Math.floor(y - 1); row <= y + 2; row++) {
        for (let column = Math.floor(x - 1); column <= x + 2; column++) {
          if (row < 0 || row >= size || column < 0 || column >= size) continue;
          const ink = Math.exp(-((row - y) ** 2 + (column - x) ** 2) / 1.2);
          const at = row * size + column;
          image[at] = Math.max(image[at], ink);
        }
      }
    }
  }
  for (let i = 0; i < image.length; i++) image[i] = Math.min(1, Math.max(0, image[i] + 0.35 * (random() - 0.5)));
}

/** Returns images of shape [count, 784] and labels of shape [count]. */
export function makeDigits(count, seed) {
  const random = generator(seed);
  const images = new Float32Array(count * size * size);
  const labels = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    labels[i] = Math.floor(random() * 10);
    draw(images.subarray(i * size * size, (i + 1) * size * size), labels[i], random);
  }
  return { images: weft.tensor(images, { shape: [count, size * size] }), labels: weft.tensor(labels) };
}

/** A network with one hidden layer: parameters, and logits of images. */
export const model = {
  init: (key) => {
    const keys = weft.splitKey(key, 2);
    return {
      hidden: nn.linear.init({ in: size * size, out: 128 }, keys.index(0)),
      out: nn.linear.init({ in: 128, out: 10 }, keys.index(1)),
    };
  },
  apply: (params, x) => nn.linear.apply(params.out, nn.linear.apply(params.hidden, x).relu()),
};

/** Trains for `steps` steps and calls `onStep` with { step, steps, loss, kernels, rate } every ten steps. */
export function train({ steps = 400, batch = 128, examples = 4096, onStep = () => {} } = {}) {
  const data = makeDigits(examples, 1);
  const held = makeDigits(1000, 2);
  const optimizer = optim.adam({ learningRate: 2e-3 });
  const step = weft.jit(
    (params, state, images, labels, rows) => {
      const [x, y] = [images.take(rows, 0), labels.take(rows, 0)];
      const [loss, grads] = weft.valueAndGrad((p) => weft.crossEntropy(model.apply(p, x), y))(params);
      return [...optimizer.update(params, grads, state), loss];
    },
    { donate: [0, 1] },
  );
  const accuracy = weft.jit((params, { images, labels }) =>
    model.apply(params, images).argmax(-1).equal(labels).cast("float32").mean(),
  );
  let params = model.init(weft.key(0));
  let state = optimizer.init(params);
  const random = generator(3);
  const rows = () => weft.tensor(Int32Array.from({ length: batch }, () => Math.floor(random() * examples)));
  const kernels = step.kernels(params, state, data.images, data.labels, rows()).length;
  const start = performance.now();
  for (let i = 1; i <= steps; i++) {
    let loss;
    [params, state, loss] = step(params, state, data.images, data.labels, rows());
    if (i === 1 || i % 10 === 0 || i === steps)
      onStep({ step: i, steps, loss: loss.itemSync(), kernels, rate: i / ((performance.now() - start) / 1e3) });
  }
  return { accuracy: accuracy(params, held).itemSync(), kernels };
}

/** Prints progress: one updated line on a terminal, otherwise one line per hundred steps. */
export function showProgress({ step, steps, loss, kernels, rate }) {
  const terminal = process.stdout.isTTY;
  if (!terminal && step !== 1 && step % 100 !== 0) return;
  const text = `step ${step}/${steps}   loss ${loss.toFixed(4)}   ${kernels} kernels per step   ${rate.toFixed(0)} steps/s`;
  if (terminal) process.stdout.write(`\r\u001b[2K${text}${step === steps ? "\n" : ""}`);
  else console.log(text);
}

if (process.argv[1] === import.meta.filename) {
  const { accuracy } = train({ onStep: showProgress });
  console.log(`accuracy on 1000 held-out digits: ${(accuracy * 100).toFixed(1)}%`);
}
