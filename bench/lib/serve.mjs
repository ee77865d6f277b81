// A contestant written in JavaScript: answers "prepare" and "time" requests, one JSON line each, on standard input and
// output. A row is an async function that returns { call, check, info?, isAsync?, release? }.
import { createInterface } from "node:readline";

/** Milliseconds per call, one sample for every stretch of at least five. */
async function timeCalls({ call, isAsync }, seconds, least) {
  const run = async (count) => {
    const start = performance.now();
    if (isAsync) for (let i = 0; i < count; i++) await call();
    else for (let i = 0; i < count; i++) call();
    return (performance.now() - start) / count;
  };
  const once = await run(1);
  const group = Math.max(1, Math.ceil(5 / Math.max(once, 1e-4)));
  const samples = [];
  const end = performance.now() + seconds * 1e3;
  while (samples.length < least || performance.now() < end) samples.push(await run(group));
  return samples;
}

export async function serve(rows, versions) {
  const ready = new Map();
  const handlers = {
    versions: async () => versions,
    prepare: async ({ row }) => {
      if (rows[row] === undefined) throw new Error(`no row ${row}`);
      const made = await rows[row]();
      ready.set(row, made);
      await timeCalls(made, 0.2, 2);
      return { check: made.check, info: made.info ?? {} };
    },
    time: async ({ row, seconds, least }) => ({ samples: await timeCalls(ready.get(row), seconds, least) }),
    release: async ({ row }) => {
      ready.get(row)?.release?.();
      ready.delete(row);
      return {};
    },
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    let answer;
    try {
      answer = await handlers[request.do](request);
    } catch (error) {
      answer = { error: String(error?.stack ?? error) };
    }
    process.stdout.write(`${JSON.stringify({ id: request.id, ...answer })}\n`);
  }
}
