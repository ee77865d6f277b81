// One process of bench/quantum-shard.mjs: a client of N one-core workers, or one core by itself. Runs the rows that it is told
// to, one at a time, all processes of a kind together, and says how long calls took, what moved, and the numbers.
import * as weft from "weft";
import { rows } from "./quantum-shard-rows.mjs";

const now = () => performance.now() / 1e3;
const say = (message) => new Promise((done) => process.send(message, done));

/** A few numbers of a result that tell a wrong one: the value, and the norm of each gradient. */
async function fingerprint(result) {
  const leaves = weft.treeLeaves(result);
  const all = await Promise.all(leaves.map(async (t) => Array.from(await t.data(), Number)));
  return all.map((x) => Math.hypot(...chunked(x)));
}
/** Math.hypot takes its arguments on the stack. */
function* chunked(x) {
  for (let i = 0; i < x.length; i += 4096) yield Math.hypot(...x.slice(i, i + 4096));
}

async function measure(id, { warmup, seconds, least }, settle, cluster) {
  const [, make] = rows[id];
  const row = make();
  const program = weft.jit((...args) => row.fn(...args));
  const begin = now();
  const numbers = await fingerprint(program(...row.args));
  const first = now() - begin;
  const once = async () => {
    const leaves = weft.treeLeaves(program(...row.args));
    weft.session().realize(leaves.map((t) => t.node));
    await settle(leaves[0]);
    for (const leaf of leaves) leaf.dispose();
  };
  await say({ kind: "ready", id });
  await new Promise((go) => process.once("message", go));
  for (let i = 0; i < warmup; i++) await once();
  const samples = [];
  const end = now() + seconds;
  while (samples.length < least || now() < end) {
    const start = now();
    await once();
    samples.push(now() - start);
  }
  const facts = cluster === null ? {} : planned(row, cluster);
  for (const leaf of weft.treeLeaves(row.args)) leaf.dispose();
  return { kind: "row", id, first, numbers, samples, ...facts };
}

/** What the planner did with the row; anything that should not move is an error. */
function planned(row, { device, workers }) {
  const { mesh, params, results, moves } = device.lastPlan;
  const n = workers.length;
  if (mesh.size !== n) throw new Error(`planned for ${mesh.size} of ${n} workers: ${device.lastChoice}`);
  const found = moves.map(({ kind, bytes }) => [kind, bytes]);
  // The bytes of the tensors that are summed, from what a device receives of them.
  const share = { allReduce: (2 * (n - 1)) / n, reduceScatter: (n - 1) / n };
  if (row.gradient !== undefined && n > 1) {
    const summed = found.reduce((sum, [kind, bytes]) => sum + (kind in share ? bytes / share[kind] : 0), 0);
    const others = found.reduce((sum, [kind, bytes]) => sum + (kind in share ? 0 : bytes), 0);
    // The values of the tasks, a number each, may be put together instead of their mean.
    if (summed > row.gradient + 1 || summed < row.gradient - 5 || others > 4096)
      throw new Error(`moves ${JSON.stringify(found)}; expected sums of ${row.gradient} bytes and values at most`);
  }
  const odd = row.kinds === undefined ? undefined : found.find(([kind]) => !row.kinds.includes(kind));
  if (odd !== undefined) throw new Error(`${odd[0]} of ${odd[1]} bytes; expected ${row.kinds.join(" and ")} only`);
  return {
    plan: device.lastChoice,
    collectives: found,
    placements: { params: params.map(String), results: results.map(String) },
  };
}

process.once("message", async (job) => {
  let cluster = null;
  try {
    if (job.mode === "sharded") cluster = await weft.connect({ devices: job.count, cores: 1, pin: true });
    else weft.useDevice(new weft.CpuDevice({ cores: [job.core] }));
    const settle =
      cluster === null
        ? async () => weft.session().device.synchronize()
        : (t) => cluster.device.computed(t.node.value.buffer);
    for (const id of job.rows) {
      try {
        await say(await measure(id, job, settle, cluster));
      } catch (error) {
        await say({ kind: "failed", id, message: String(error?.message ?? error).slice(0, 600) });
      }
    }
  } catch (error) {
    await say({ kind: "broken", message: String(error?.message ?? error).slice(0, 600) });
  } finally {
    await cluster?.close();
    process.disconnect();
  }
});
process.on("disconnect", () => process.exit());
