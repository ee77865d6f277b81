// Problems of QuTiP's documentation against QuTiP itself; npm run bench -- quantum-peers compares all of them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice } from "@weft/core/internal/device";
import { testPython } from "@weft/testing/python";
import { runQutip } from "./quantum-peers.js";
import { largestDifference, problems } from "./quantum-peers-problems.js";

/** Problems that compile fast: one of each kind. */
const ids = [
  "rabi",
  "decay",
  "cosine-drive",
  "decay-in-time",
  "steady-qubit",
  "steady-kerr",
  "unitary-propagator",
  "open-propagator",
  "emission-correlation",
  "cat-wigner",
  "husimi",
  "squeezing",
  "mixed-measures",
  "werner",
  "floquet",
];

const { python, skip } = testPython("qutip", "comparison with QuTiP");
const options = { skip: CpuDevice.available() ? skip : "no C compiler" };

test("results equal those of QuTiP", options, () => {
  const { answers } = runQutip(python, ids, 0);
  for (const id of ids) {
    const error = largestDifference(problems[id](), answers.get(id)!.exact);
    assert.ok(error < 3e-7, `${id}: ${error}`);
  }
});
