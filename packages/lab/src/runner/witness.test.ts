// The machine as a witness: foreign load is counted and named, and the own children are not.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { test } from "node:test";
import { judgeBench } from "../bench/index.js";
import { disturbanceOf, type MachineReport, MachineWitness } from "./witness.js";

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const busy = "const end = Date.now() + 60000; while (Date.now() < end);";

/** Starts a process whose parent ends: it is adopted by init, and nothing connects it with this process. */
async function orphan(command: string, args: string[]): Promise<number> {
  const program = `const c=require("child_process").spawn(${JSON.stringify(command)},${JSON.stringify(args)},{detached:true,stdio:"ignore"});c.unref();console.log(c.pid)`;
  const parent: ChildProcess = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "ignore"] });
  let text = "";
  parent.stdout!.on("data", (data: Buffer) => {
    text += data.toString();
  });
  await new Promise((resolve) => parent.on("exit", resolve));
  return Number(text.trim());
}

test("a child counts as own; processes that are not ours are foreign, with their children that ended", async (t) => {
  const child = spawn(process.execPath, ["-e", busy], { stdio: "ignore" });
  const foreign = await orphan(process.execPath, ["-e", busy]);
  // As a build does: the process itself only waits, and none of its children lives for long.
  const builder = await orphan("bash", ["-c", "while :; do head -c 5000000 /dev/zero | sha256sum; done"]);
  try {
    // All of them: on a busy machine others may use more than these.
    const witness = new MachineWitness({ listed: Number.POSITIVE_INFINITY });
    await pause(1500);
    const report = witness.report();
    if (report.seconds === 0 || report.others.length === 0) return t.skip("no /proc here");
    const used = new Map(report.others.map((o) => [o.pid, o.percent]));
    assert.ok(used.has(foreign), JSON.stringify(report));
    assert.ok(!used.has(child.pid!), "a child is part of the measurement");
    assert.ok(report.ownPercent > 0);
    // The scheduler gives both about the same share of a busy machine.
    const built = used.get(builder) ?? 0;
    assert.ok(built > used.get(foreign)! / 4, `${built}% for short processes: ${JSON.stringify(report.others)}`);
  } finally {
    child.kill("SIGKILL");
    process.kill(foreign, "SIGKILL");
    process.kill(-builder, "SIGKILL");
  }
});

const quiet: Omit<MachineReport, "disturbance"> = {
  seconds: 1,
  cores: 4,
  ownPercent: 40,
  foreignPercent: 2,
  stealPercent: 0,
  throttledPercent: 0,
  runQueue: 1,
  clockRatio: 1,
  others: [],
  gpuOthers: [],
};

test("a quiet machine is no disturbance; load, steal, quotas and other GPU users are named", () => {
  assert.equal(disturbanceOf(quiet), null);
  const busy = { ...quiet, foreignPercent: 73, others: [{ pid: 7, name: "make", percent: 70 }] };
  assert.equal(disturbanceOf(busy), "others used 73% of the cores: make (pid 7) 70%");
  assert.match(disturbanceOf({ ...quiet, stealPercent: 9 })!, /hypervisor gave 9%/);
  assert.match(disturbanceOf({ ...quiet, throttledPercent: 30 })!, /quota stopped this container 30%/);
  assert.match(
    disturbanceOf({ ...quiet, gpuOthers: [{ pid: 3, name: "python", memoryMiB: 9 }] })!,
    /others used the GPU: python/,
  );
});

test("weft bench gives no advice when others used the machine", () => {
  const result = (devices: number, seconds: number) => ({
    devices,
    status: "ok" as const,
    compute: [seconds, seconds],
    endToEnd: [],
    split: { create: 0, plan: 0, compute: seconds, communicate: 0, fetch: 0 },
    error: null,
  });
  const record = {
    format: "weft-bench",
    version: 1,
    suite: "quick",
    device: "cpu",
    autoShard: true,
    rows: [{ label: "square", flops: 1e9, paysFrom: null, results: [result(1, 1), result(2, 2)] }],
  };
  const advice = (machine?: object) =>
    judgeBench({ ...record, ...(machine !== undefined && { machine }) } as never).verdicts.at(-1)!.advice;
  assert.match(advice(), /use 1 device/);
  assert.equal(advice({ disturbance: "others used 73% of the cores" }), "cannot say: others used 73% of the cores");
});
