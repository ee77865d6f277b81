// @ts-check
// Shards a matrix product over two workers of this machine, and shows when the planner leaves a product on one.
import { connect } from "@weft/cluster";
import * as weft from "@weft/core";
import { median } from "@weft/formats/stats";
import { formatMicroseconds } from "@weft/formats/text";
import { barChart, savePicture, small, verify, watchMachine } from "../example.mjs";

const sizes = small ? [64, 512] : [64, 512, 2048];
const repeats = small ? 3 : 9;

/**
 * Median time of a product and the planner's choice, with this number of workers.
 * @param {number} devices
 */
async function measure(devices) {
  const cluster = await connect({ devices, cores: 1 });
  const rows = [];
  for (const n of sizes) {
    const a = weft.randn([n, n], { seed: 1 });
    const b = weft.randn([n, n], { seed: 2 });
    const times = [];
    let c = a.matmul(b);
    const values = await c.data();
    for (let i = 0; i < repeats; i++) {
      const start = performance.now();
      c = a.matmul(b);
      await c.index(0, 0).item(); // one number: waits for the product, moves no matrix
      times.push((performance.now() - start) * 1e3);
    }
    const choice = cluster.device.lastChoice ?? "";
    rows.push({
      n,
      us: median(times),
      values,
      inputs: [await a.data(), await b.data()],
      choice,
      drawn: weft.debug.sharding(c),
    });
  }
  await cluster.close();
  return rows;
}

const remark = watchMachine();
const [one, two] = [await measure(1), await measure(2)];
for (const { n, us, values, inputs, choice, drawn } of two) {
  console.log(`\n${n} x ${n}: ${formatMicroseconds(us)}\n${choice}\n${drawn}`);
  // One entry by hand: a row of the first matrix times a column of the second.
  const [row, column] = [n - 1, Math.floor(n / 3)];
  let sum = 0;
  for (let k = 0; k < n; k++) sum += Number(inputs[0][row * n + k]) * Number(inputs[1][k * n + column]);
  verify(`entry [${row}, ${column}] of ${n} x ${n}`, Math.abs(Number(values[row * n + column]) - sum) < 1e-4 * n);
}
savePicture(
  import.meta.dirname,
  "times.svg",
  barChart(
    sizes.map((n, k) => ({ name: `${n} x ${n}`, values: [one[k].us, two[k].us] })),
    ["one worker", "two workers"],
    {
      title: "A product on one worker and on two",
      subtitle: `median of ${repeats} calls, one core per worker; ${remark()}`,
      show: formatMicroseconds,
    },
  ),
);
