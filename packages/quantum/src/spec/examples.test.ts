// The examples that are optimized: within their bounds, to the infidelities that their files state.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CpuDevice } from "@weft/core";
import { needsRepository, repositoryRoot } from "@weft/testing/examples";
import { minimize } from "../control/index.js";
import { GateProblem, parseGateSpec } from "./index.js";

const skip = CpuDevice.available() ? needsRepository.skip : "needs a compiler";
const load = (name: string): GateProblem =>
  new GateProblem(parseGateSpec(readFileSync(join(repositoryRoot, `examples/quantum/${name}.yaml`), "utf8"), name));

test("a transmon's X gate reaches 1e-6 within bounds, without leakage", { skip }, () => {
  const problem = load("transmon-x");
  const before = problem.report();
  assert.ok(before.infidelity > 0.02 && before.leaked! > 1e-4, `${before.infidelity}`);
  const found = minimize(problem.loss, problem.learned(), { bounds: problem.spec.bounds, target: 1e-6 });
  for (const values of Object.values(found.params)) assert.ok(values.abs().max().itemSync() <= 0.5);
  const { infidelity, error, leaked } = problem.report(found.params);
  assert.ok(infidelity < 1e-6 && error < 1e-6 && leaked! < 1e-5, `${infidelity} +- ${error}, leaked ${leaked}`);
});

test("an iSWAP gate by exchange coupling", { skip }, () => {
  const { infidelity } = load("iswap").report();
  assert.ok(infidelity < 1e-5, `${infidelity}`);
});
