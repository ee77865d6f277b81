// Settings: parsing, errors, old names, and the generated reference page.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { programFile } from "../device/cpu/saved-program.js";
import { CpuDevice } from "../device/index.js";
import { build } from "../ops/index.js";
import { allSettings, choiceSetting, flagSetting, numberSetting, settings, textSetting } from "./index.js";

test("a variable that is unset or empty has its default", () => {
  assert.equal(settings.cudaGraphs.get({}), true);
  assert.equal(settings.cudaGraphs.get({ WEFT_CUDA_GRAPHS: "" }), true);
  assert.equal(settings.threads.get({ WEFT_THREADS: "" }), undefined);
  assert.equal(settings.threads.isSet({ WEFT_THREADS: "" }), false);
  assert.equal(settings.lanes.get({}), "1");
});

test("values are parsed by type, and follow changes of the environment", () => {
  for (const word of ["0", "false", "off", "No"]) assert.equal(settings.nccl.get({ WEFT_NCCL: word }), false);
  for (const word of ["1", "TRUE", "on", "yes"]) assert.equal(settings.nvtx.get({ WEFT_NVTX: word }), true);
  assert.equal(settings.cacheBytes.get({ WEFT_CACHE_BYTES: "1e6" }), 1e6);
  assert.equal(settings.groupTimeout.get({ WEFT_GROUP_TIMEOUT: "2.5" }), 2.5);
  assert.equal(settings.pinnedLimit.get({ WEFT_PINNED_LIMIT: "0" }), 0);
  const env: Record<string, string> = { WEFT_THREADS: "2" };
  assert.equal(settings.threads.get(env), 2);
  env.WEFT_THREADS = "3";
  assert.equal(settings.threads.get(env), 3);
});

test("a bad value of any setting is an error that names the variable and what it accepts", () => {
  for (const setting of allSettings()) {
    const { accepts } = setting.type;
    if (!/number|1 or 0|^(\w+, )+\w+$|^block$/.test(accepts)) continue;
    for (const bad of ["-1", "x", "1x", "NaN", "Infinity", "0x10", "2 3", "z".repeat(500)])
      assert.throws(
        () => setting.get({ [setting.name]: bad }),
        (error: Error) =>
          error.message.startsWith(`${setting.name}="`) &&
          error.message.includes(accepts) &&
          error.message.length < 300,
        `${setting.name}=${bad}`,
      );
  }
  assert.throws(() => settings.threads.get({ WEFT_THREADS: "0" }), /at least 1|from 1/);
  assert.throws(() => settings.debug.get({ WEFT_DEBUG: "5" }), /from 0 to 4/);
});

test("an old name is read where it means this setting, and reported once", () => {
  const setting = choiceSetting("WEFT_TEST_NEW_NAME", ["a", "b"], "a", {
    summary: "For this test.",
    formerly: { name: "WEFT_TEST_OLD_NAME", matches: (value) => value === "b" },
  });
  const { write } = process.stderr;
  const said: string[] = [];
  process.stderr.write = ((line: string) => said.push(line)) as never;
  try {
    assert.equal(setting.get({ WEFT_TEST_OLD_NAME: "b" }), "b");
    assert.equal(setting.get({ WEFT_TEST_OLD_NAME: "/folder" }), "a");
    assert.equal(setting.get({ WEFT_TEST_OLD_NAME: "b" }), "b");
    assert.equal(setting.get({ WEFT_TEST_OLD_NAME: "b", WEFT_TEST_NEW_NAME: "a" }), "a");
  } finally {
    process.stderr.write = write;
  }
  assert.deepEqual(said, ["weft: WEFT_TEST_OLD_NAME=b is called WEFT_TEST_NEW_NAME now; the old name is still read\n"]);
});

test("a name can be defined once", () => {
  for (const define of [flagSetting, numberSetting] as ((name: string, initial: never, doc: never) => unknown)[])
    assert.throws(() => define("WEFT_DEBUG", 0 as never, { summary: "" } as never), /defined twice/);
  assert.throws(() => textSetting("WEFT_TAPE", "", { summary: "" }), /defined twice/);
});

test("WEFT_DEBUG=0 leaves the cache of programs on, and 1 turns it off", {
  skip: CpuDevice.available() ? false : "no C compiler",
}, () => {
  const x = build.input([3], "float32");
  const fn = { params: [x], outputs: [build.neg(x)] };
  const before = process.env.WEFT_DEBUG;
  try {
    process.env.WEFT_DEBUG = "0";
    assert.notEqual(programFile(fn, {}), null);
    process.env.WEFT_DEBUG = "1";
    assert.equal(programFile(fn, {}), null);
  } finally {
    if (before === undefined) delete process.env.WEFT_DEBUG;
    else process.env.WEFT_DEBUG = before;
  }
});

test("a setting without a default can be unset again", () => {
  assert.equal(settings.laneHistory.get({ WEFT_LANE_HISTORY: "memory" }), "memory");
  assert.equal(settings.laneHistory.get({}), undefined);
});

const script = fileURLToPath(new URL("../../../../scripts/settings-doc.mjs", import.meta.url));
test("docs/settings.md is up to date, and every variable that is read is in the table", {
  skip: existsSync(script) ? false : "not in the workspace",
}, () => {
  const done = spawnSync(process.execPath, [script, "--check"], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
});
