// Every case of every public function on the CUDA device, with libraries that run on the host, against the reference
// device. Compiling takes most of the time: each case runs with two of its dtypes (the next case with the next two), and
// many cases share a program. WEFT_TEST_FULL=1 runs all dtypes.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { ReferenceDevice, useDevice } from "../index.js";
import { cases } from "./cases/index.js";
import { emulatedDevice } from "./devices.js";
import { type Job, jobOf, mismatches, runEagerly, runJobs } from "./jobs.js";

const skip = emulatedDevice.available() ? false : "no C++ compiler";
const perProgram = 40;

const full = Boolean(process.env.WEFT_TEST_FULL);
const jobs: Job[] = cases.flatMap((item, i) =>
  item.dtypes
    .filter((_, k) => full || (k + i) % Math.ceil(item.dtypes.length / 2) === 0)
    .map((dtype) => jobOf(item, dtype)),
);
const programs = Array.from({ length: Math.ceil(jobs.length / perProgram) }, (_, i) =>
  jobs.slice(i * perProgram, (i + 1) * perProgram),
);

describe("the emulated CUDA device against the reference", { skip }, () => {
  before(() => void emulatedDevice.make());
  after(() => void useDevice(new ReferenceDevice()));
  for (const group of programs)
    test(`${group[0].name} to ${group[group.length - 1].name}`, () => {
      useDevice(new ReferenceDevice());
      const expected = group.map(runEagerly);
      useDevice(emulatedDevice.make());
      const actual = runJobs(group, perProgram);
      const wrong = group.flatMap((job, i) => mismatches(job, actual[i], expected[i]));
      assert.equal(wrong.length, 0, `${wrong.length} mismatches\n${wrong.slice(0, 20).join("\n")}`);
    });
});
