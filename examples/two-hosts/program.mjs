// @ts-check
// Uses the workers of two hosts as one device: WEFT_CONNECT=HOST:PORT names the dispatcher. README.md says how to start it.
import { connect, watch } from "@weft/cluster";
import * as weft from "@weft/core";
import { formatBytes } from "@weft/formats/text";
import { barChart, savePicture, small, verify } from "../example.mjs";

const address = process.env.WEFT_CONNECT;
if (address === undefined) {
  console.log("SKIPPED: WEFT_CONNECT names no dispatcher; README.md says how to start one and its workers");
  process.exit(0);
}
const cluster = await connect(address);
// Four layers on a batch: each host computes its half of the rows.
const [rows, width] = small ? [2048, 256] : [16384, 1024];
const x = weft.randn([rows, width], { seed: 1 });
const w = weft.randn([width, width], { seed: 2 }).mul(1 / Math.sqrt(width));
let y = x;
for (let layer = 0; layer < 4; layer++) y = y.matmul(w).tanh();
const values = await y.data();
console.log(`${cluster.device.lastChoice}\n${weft.debug.sharding(y)}`);

// The last row by hand.
const [input, weights] = [await x.data(), await w.data()];
let row = Array.from({ length: width }, (_, k) => Number(input[(rows - 1) * width + k]));
for (let layer = 0; layer < 4; layer++)
  row = row.map((_, j) => Math.tanh(row.reduce((sum, v, k) => sum + v * Number(weights[k * width + j]), 0)));
const worst = Math.max(...row.map((v, j) => Math.abs(v - Number(values[(rows - 1) * width + j]))));
verify(`the last row is off by ${worst.toExponential(1)}`, worst < 1e-4);

/** @type {import("@weft/cluster").ClusterStatus["workers"]} */
const workers = await new Promise((resolve, reject) => {
  const stop = watch(
    address,
    {},
    (status) => {
      // Workers report their counts once per second.
      if (status.workers.some(({ stats }) => (stats?.runs ?? 0) === 0)) return;
      stop();
      resolve(status.workers);
    },
    (reason) => reject(new Error(reason)),
  );
});
for (const { info, stats } of workers)
  console.log(
    `${info.process.host}: ${stats?.runs} programs, ${stats?.kernels} kernels, holds ${formatBytes(stats?.bytes)}`,
  );
verify("the workers are on two hosts", new Set(workers.map(({ info }) => info.process.host)).size === 2);
await cluster.close();
savePicture(
  import.meta.dirname,
  "workers.svg",
  barChart(
    workers.map(({ info, stats }, k) => ({
      name: `host ${k + 1} (${info.device})`,
      values: [stats?.bytes ?? 0, stats?.movedBytes ?? 0],
    })),
    ["bytes held", "bytes received from the other worker"],
    { title: "Two hosts, one device", subtitle: `${rows} rows through four layers`, show: formatBytes },
  ),
);
