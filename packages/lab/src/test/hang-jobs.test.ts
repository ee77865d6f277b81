import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { endGroups } from "./hang-jobs.js";

/** Whether a process runs. One that has ended stays a zombie where the first process collects none, as in many containers. */
function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return process.platform !== "linux" || !/\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

for (const leader of ["has ended", "still runs"])
  test(`what a rank has forked ends with it when the rank ${leader}`, async () => {
    const wait = leader === "has ended" ? "" : "; wait";
    // The forked process ignores what a parent may send it, as a stopped loader does.
    const job = spawn("sh", ["-c", `(trap "" HUP TERM; exec sleep 60 >/dev/null) & echo $!${wait}`], {
      detached: true,
      stdio: ["ignore", "pipe", "ignore"],
    });
    const [text] = (await once(job.stdout, "data")) as [Buffer];
    const forked = Number(String(text).trim());
    if (leader === "has ended" && job.exitCode === null) await once(job, "exit");
    assert.ok(forked > 0 && runs(forked));
    endGroups([job]);
    endGroups([job]);
    for (let i = 0; i < 100 && runs(forked); i++) await new Promise((resolve) => setTimeout(resolve, 50));
    assert.ok(!runs(forked));
  });
