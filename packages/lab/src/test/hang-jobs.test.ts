import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { isAlive } from "@weft/testing/processes";
import { endGroups } from "./hang-jobs.js";

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
    assert.ok(forked > 0 && isAlive(forked));
    endGroups([job]);
    endGroups([job]);
    for (let i = 0; i < 100 && isAlive(forked); i++) await new Promise((resolve) => setTimeout(resolve, 50));
    assert.ok(!isAlive(forked));
  });
