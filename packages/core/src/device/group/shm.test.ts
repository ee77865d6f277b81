import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import koffi from "koffi";
import { dtypes } from "../../graph/index.js";
import { StoppedError } from "../contract.js";
import { CpuDevice } from "../cpu/index.js";
import { groupFiles, groupLibrary, groupPath, removeStale, ShmGroup } from "./index.js";
import { groupName, runRanks, type Started, startRanks } from "./testkit.js";

const members = new URL("./members.testkit.js", import.meta.url).href;
const skip = CpuDevice.available() ? false : "no C compiler";

test("every collective of every dtype equals the reference over 2 processes", { skip }, async () => {
  // Below and above what goes through the slots, odd sizes, fewer rows than ranks.
  const shapes = [
    [5, 3],
    [1, 2],
    [131, 67],
  ];
  for (const answer of await runRanks(2, members, "everyKind", { shapes, dtypes }))
    assert.deepEqual((answer as { wrong: string[] }).wrong, []);
});

test("collectives over 3 and 5 processes, with empty parts and subgroups, equal the reference", { skip }, async () => {
  const shapes = [
    [7, 5],
    [2, 3],
    [403, 211],
  ];
  for (const size of [3, 5]) {
    for (const answer of await runRanks(size, members, "everyKind", { shapes, dtypes: ["float32", "complex64"] })) {
      const { wrong, run } = answer as { wrong: string[]; run: number };
      assert.deepEqual(wrong, []);
      assert.ok(run >= 40);
    }
  }
});

test("sums that round have the same bits on all ranks", { skip }, async () => {
  const hashes = await runRanks(3, members, "sameBits");
  assert.equal(new Set(hashes).size, 1);
});

const joined = async ({ processes }: Started): Promise<void> => {
  await Promise.all(processes.map((child) => once(child.stderr!, "data")));
};

test("a killed member is an error for the others at once, and leaves no file", { skip }, async () => {
  const started = startRanks(3, members, "untilError");
  await joined(started);
  started.processes[1].kill("SIGKILL");
  const [first, killed, third] = await started.results;
  assert.equal(killed.signal, "SIGKILL");
  for (const { value } of [first, third]) {
    const { message, seconds } = value as { message: string; seconds: number };
    assert.match(message, /rank 1 .*is gone|given up after an error on rank/);
    assert.ok(seconds < 10, `${seconds} s`);
  }
  assert.deepEqual(
    groupFiles().filter((name) => name.includes(`test-${process.pid}`)),
    [],
  );
});

test("who waits for a member that has given up notices that another one is gone", { skip }, async () => {
  const name = groupName();
  const { processes, results } = startRanks(3, members, "joinOnly", { timeout: 60, absent: 1 }, { name });
  const isThere = (): boolean => readFileSync(`/proc/${processes[2].pid}/maps`, "utf8").includes(name);
  while (!isThere()) await delay(10);
  // The last rank has seen the first, and waits for the second.
  const begun = performance.now();
  processes[0].kill("SIGKILL");
  await once(processes[2], "close");
  assert.ok(performance.now() - begun < 20_000, `${performance.now() - begun} ms`);
  processes[1].kill("SIGKILL");
  assert.match((await results)[2].value as string, /rank 0 of group .* is gone/);
});

test("a stopped member is an error that names its process", { skip }, async () => {
  const started = startRanks(2, members, "untilError");
  await joined(started);
  const { pid } = started.processes[1];
  process.kill(pid!, "SIGSTOP");
  await once(started.processes[0], "close");
  process.kill(pid!, "SIGCONT");
  const [first, second] = await started.results;
  assert.match((first.value as { message: string }).message, new RegExp(`rank 1 .*process ${pid}.* is stopped`));
  assert.match((second.value as { message: string }).message, /given up|is gone/);
});

test("ranks that issue different collectives get an error", { skip }, async () => {
  const answers = await runRanks(2, members, "disagree");
  assert.ok(answers.some((a) => /another collective/.test(a as string)));
  assert.ok(answers.every((a) => /another collective|given up/.test(a as string)));
});

test("a group that is incomplete names the missing ranks", { skip }, () => {
  const name = groupName();
  assert.throws(() => ShmGroup.join(name, 0, 2, { joinTimeout: 0.2 }), /rank 1 of group .* did not come within 0.2 s/);
  assert.ok(!groupFiles().some((file) => file.includes(name)));
  assert.throws(() => ShmGroup.join(name, 2, 2), /rank 2 is not one of a group of 2/);
  assert.throws(() => ShmGroup.join("a/b", 0, 1), /may have letters/);
});

test("a name left by a dead process is taken over, garbage under it too", { skip }, async () => {
  const name = groupName();
  const waiting = startRanks(1, members, "joinOnly", { timeout: 30, size: 2 }, { name });
  while (!groupFiles().some((file) => file.endsWith(name))) await delay(5);
  waiting.processes[0].kill("SIGKILL");
  await waiting.results;
  assert.deepEqual(await runRanks(2, members, "joinOnly", { timeout: 20 }, { name }), ["joined", "joined"]);
  writeFileSync(groupPath(name), "not a control segment");
  assert.deepEqual(await runRanks(2, members, "joinOnly", { timeout: 20 }, { name }), ["joined", "joined"]);
  assert.ok(!groupFiles().some((file) => file.includes(name)));
});

test("names of groups whose maker was killed are removed, those of living ones are not, whatever they end with", {
  skip,
}, async () => {
  // Two ranks are missing: the first waits, and its name stays there meanwhile. No process has such a number.
  const name = `${groupName()}-1.2.4194999`;
  const { processes, results } = startRanks(1, members, "joinOnly", { timeout: 60, size: 3 }, { name });
  const there = (): boolean => groupFiles().some((file) => file.endsWith(name));
  while (!there()) await delay(10);
  assert.deepEqual(
    removeStale().filter((file) => file.endsWith(name)),
    [],
  );
  assert.ok(there(), "it still waits");
  // A container that shares the folder and counts its processes from 1.
  const index = new URL("./index.js", import.meta.url).href;
  const script = `import { removeStale } from ${JSON.stringify(index)}; removeStale();`;
  spawnSync("unshare", ["--pid", "--fork", "--mount-proc", process.execPath, "--input-type=module", "-e", script]);
  assert.ok(there(), "another container removed it");
  processes[0].kill("SIGKILL");
  await results;
  // Anybody who joins a group anywhere may do it first.
  removeStale();
  assert.ok(!there());
});

test("a call that is to end does not wait for members any longer", { skip }, () => {
  const { address, begin } = new CpuDevice().interruption;
  const numbers = new Int32Array(koffi.view(BigInt(address), 8));
  groupLibrary().stopFlags(address);
  begin(7);
  numbers[1] = 7;
  try {
    const begun = performance.now();
    assert.throws(() => ShmGroup.join(groupName(), 0, 2, { joinTimeout: 30 }), StoppedError);
    assert.ok(performance.now() - begun < 5000);
  } finally {
    numbers[1] = -1;
    groupLibrary().stopFlags(0);
  }
});
