// The programs of examples/quantum that reproduce published results, at small cost.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { CpuDevice } from "@weft/core";
import { needsRepository, repositoryRoot } from "@weft/testing/examples";

const skip = CpuDevice.available() ? needsRepository.skip : "needs a compiler";
const folder = join(repositoryRoot, "examples/quantum");
const solve = async (name: string, options: object = {}): Promise<Record<string, number> & { picture: string }> =>
  (await import(pathToFileURL(join(folder, `${name}.mjs`)).href)).solve(options);
const near = (got: number, want: number, tolerance: number): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${got}, published ${want} +- ${tolerance}`);

test("perfect state transfer needs the published couplings", { skip }, async () => {
  const { fidelity, equalCouplings } = await solve("state-transfer", { spins: 5, saves: 20 });
  near(fidelity, 1, 1e-10);
  assert.ok(equalCouplings < 0.99, `${equalCouplings}`);
});

test("two-photon dissipation prepares a cat, whose parity decays with twice its photons", { skip }, async () => {
  const { fidelity, parityDecay, publishedParityDecay } = await solve("cat-stabilization", { levels: 14, alpha: 1.2 });
  assert.ok(fidelity > 0.99, `${fidelity}`);
  near(parityDecay, publishedParityDecay, 0.02 * publishedParityDecay);
});

test("the search finds the speed limit of a crossing", { skip }, async () => {
  const { duration, speedLimit, infidelity } = await solve("speed-limit", { precision: 0.02, segments: 8 });
  assert.ok(infidelity < 1e-4);
  near(duration, speedLimit, 0.03 * speedLimit);
});

test("a CZ gate of two Rydberg atoms in the published time", { skip }, async () => {
  const { infidelity } = await solve("rydberg-cz", { search: false, segments: 32 });
  assert.ok(infidelity < 1e-4, `${infidelity}`);
});

test("a GHZ state of Rydberg atoms in the published time", { skip }, async () => {
  const { fidelity } = await solve("rydberg-ghz", { atoms: 4, segments: 22 });
  assert.ok(fidelity > 0.99, `${fidelity}`);
});

test("every published problem has a picture", { skip }, () => {
  const pictures = readdirSync(join(folder, "pictures"));
  assert.ok(pictures.length >= 8, `${pictures.length}`);
  for (const name of pictures) {
    const base = join(folder, name.replace(/\.svg$/, ""));
    assert.ok(existsSync(`${base}.mjs`) || existsSync(`${base}.yaml`), `${name} belongs to no example`);
    assert.match(readFileSync(join(folder, "pictures", name), "utf8"), /^<svg[\s\S]*<\/svg>\s*$/);
  }
});
