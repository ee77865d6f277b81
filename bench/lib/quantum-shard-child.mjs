// One process of bench/quantum-shard.mjs: a client of N one-core workers, or one core by itself. Does what it is asked:
// prepares a row (compiles it, and tells its numbers and what moves), or times calls of it.
import { connect } from "@weft/cluster";
import * as weft from "@weft/core";
import { rows } from "./quantum-shard-rows.mjs";

const now = () => performance.now() / 1e3;

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

let cluster = null;
let settle = null;
const prepared = new Map();

async function start(job) {
  if (job.mode === "sharded") cluster = await connect({ devices: job.count, cores: 1, pin: true });
  else weft.useDevice(new weft.CpuDevice({ cores: [job.core] }));
  settle =
    cluster === null
      ? async () => weft.session().device.synchronize()
      : (t) => cluster.device.computed(t.node.value.buffer);
  return {};
}

async function prepare(id) {
  const [, make] = rows[id];
  const row = make();
  const program = weft.jit((...args) => row.fn(...args));
  const begin = now();
  const numbers = await fingerprint(program(...row.args));
  const first = now() - begin;
  prepared.set(id, { row, program });
  // Arguments that come again may be given a better place at the second call: that is part of the preparation.
  for (let i = 0; i < 2; i++) await finish(issue(id, 1));
  return { first, numbers, ...(cluster === null ? {} : planned(id, row, cluster)) };
}

/** So many calls, back to back, each result let go of at once; the leaves of the last, which can be waited for. */
function issue(id, count) {
  const { row, program } = prepared.get(id);
  for (let i = 1; ; i++) {
    const leaves = weft.treeLeaves(program(...row.args));
    weft.session().realize(leaves.map((t) => t.node));
    if (i >= count) return leaves;
    for (const leaf of leaves) leaf.dispose();
  }
}
async function finish(leaves) {
  await settle(leaves[0]);
  for (const leaf of leaves) leaf.dispose();
  return now();
}

/** Seconds of a call: those waited for one by one, and those that are issued before the last are done. */
async function measure(id, seconds) {
  const alone = [];
  for (let i = 0; i < 2; i++) {
    const begin = now();
    alone.push((await finish(issue(id, 1))) - begin);
  }
  const inFlight = Math.max(1, Math.min(32, Math.floor(seconds / 4 / Math.min(...alone))));
  const samples = [];
  // The first sample fills the queue and the last empties it: neither counts.
  let pending = issue(id, inFlight);
  let before = 0;
  const end = now() + seconds;
  while (samples.length < 2 || now() < end) {
    const next = issue(id, inFlight);
    const done = await finish(pending);
    if (before > 0) samples.push((done - before) / inFlight);
    before = done;
    pending = next;
  }
  await finish(pending);
  return { samples, alone };
}

/** What the planner did with the row; anything that should not move is an error. */
function planned(id, row, { device, workers }) {
  const { mesh, params, moves } = device.lastPlan;
  const n = workers.length;
  if (mesh.size !== n && rows[id][2] === undefined)
    throw new Error(`planned for ${mesh.size} of ${n} workers: ${device.lastChoice}`);
  const found = moves.map(({ kind, bytes }) => [kind, bytes]);
  const total = found.reduce((sum, [, bytes]) => sum + bytes, 0);
  if (total > row.most)
    throw new Error(`moves ${JSON.stringify(found)}, more than the ${row.most} bytes that ${row.moved} take`);
  return {
    plan: device.lastChoice,
    used: mesh.size,
    collectives: found,
    cut: params.map(String).filter((p) => /[a-z]/.test(p)),
  };
}

const handle = async ({ start: job, prepare: id, measure: timed, seconds, stop }) => {
  if (job !== undefined) return start(job);
  if (id !== undefined) return prepare(id);
  if (timed !== undefined) return measure(timed, seconds);
  if (stop) await cluster?.close();
  return {};
};
process.on("message", async (message) => {
  let answer;
  try {
    answer = await handle(message);
  } catch (error) {
    answer = { failed: String(error?.message ?? error).slice(0, 600) };
  }
  if (process.connected) process.send(answer, () => {});
});
process.on("disconnect", () => process.exit());
process.on("SIGTERM", async () => {
  await cluster?.close();
  process.exit();
});
