// @ts-check
// A training of some steps on two workers, to be recorded: WEFT_TAPE=run.tape node job.mjs
import { connect } from "@weft/cluster";
import * as weft from "@weft/core";

const [batch, width, steps] = process.argv.slice(2).map(Number);
const cluster = await connect({ devices: 2, cores: 1 });
const x = weft.randn([batch, width], { seed: 1 });
const step = weft.jit((/** @type {weft.Tensor} */ a, /** @type {weft.Tensor} */ b) => {
  const [loss, [da, db]] = weft.valueAndGrad((/** @type {[weft.Tensor, weft.Tensor]} */ [a, b]) =>
    x.matmul(a).relu().matmul(b).sub(x).square().mean(),
  )([a, b]);
  return [a.sub(da), b.sub(db), loss];
});
let [a, b, loss] = [
  weft.randn([width, width], { seed: 2 }).mul(0.05),
  weft.randn([width, width], { seed: 3 }).mul(0.05),
  weft.zeros([]),
];
for (let i = 0; i < steps; i++) [a, b, loss] = step(a, b);
console.log(`loss ${(await loss.item()).toFixed(4)}; ${cluster.device.lastChoice}`);
await cluster.close();
