// Round trip of a tiny operation through the dispatcher: add one to two numbers on a worker and read them back, with one
// worker and with eight of which seven are idle. One client, one request at a time; medians of many.
// Options: --workers 1,8  --turns 2000  --rounds 3  --out FILE (default: results/roundtrip.json)
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { connect } from "@weft/cluster";
import * as weft from "@weft/core";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    workers: { type: "string", default: "1,8" },
    turns: { type: "string", default: "2000" },
    rounds: { type: "string", default: "3" },
    out: { type: "string", default: join(here, "results/roundtrip.json") },
  },
});
const turns = Number(options.turns);
const quantile = (values, q) => [...values].sort((a, b) => a - b)[Math.floor(q * (values.length - 1))];

async function measure(workers) {
  const cluster = await connect({ devices: workers, cores: 1 });
  try {
    const step = weft.jit((x) => x.add(1));
    let x = weft.tensor([1, 2]);
    const times = [];
    const warm = 200;
    for (let i = 0; i < turns + warm; i++) {
      const begin = performance.now();
      const y = step(x);
      const values = await y.data();
      if (i >= warm) times.push(performance.now() - begin);
      if (values[0] !== i + 2) throw new Error(`turn ${i}: ${values[0]}`);
      x.dispose();
      x = y;
    }
    const { sent } = cluster.device.connection;
    return { times, bytesPerTurn: sent.bytes / (turns + warm) };
  } finally {
    await cluster.close();
  }
}

const rows = options.workers.split(",").map((w) => ({ workers: Number(w), samples: [], bytesPerTurn: 0 }));
for (let round = 0; round < Number(options.rounds); round++)
  for (const row of rows) {
    const { times, bytesPerTurn } = await measure(row.workers);
    row.samples.push(...times);
    row.bytesPerTurn = bytesPerTurn;
  }
for (const row of rows) {
  Object.assign(row, {
    medianMs: quantile(row.samples, 0.5),
    p90Ms: quantile(row.samples, 0.9),
    p99Ms: quantile(row.samples, 0.99),
  });
  const { samples, ...shown } = row;
  console.log(JSON.stringify(shown));
}
const result = {
  what: "round trip of a tiny operation",
  machine: cpus()[0]?.model,
  cores: cpus().length,
  node: process.version,
  rows,
};
if (options.out !== "-") writeFileSync(options.out, `${JSON.stringify(result, null, 2)}\n`);
