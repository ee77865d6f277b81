// Functions of the packages that train: options that do not exist are refused before anything else happens. The functions come from
// the compiled declarations, so that a new one is checked without a change here.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { optionsParameters } from "@weft/testing/declarations";

/** Functions whose options programs of this repository make, not users, and those that check a configuration instead. */
const others = [
  ...["bytesOfLine", "launchElastic", "launchOnRay", "launchRanks", "openLoader", "ownSplit", "planEpoch"],
  ...["syntheticTable", "watch", "resolveConfig", "readConfig", "loadConfig"],
];

for (const name of ["@weft/cluster", "@weft/models", "@weft/train"])
  test(`every function of ${name} refuses options that do not exist`, async () => {
    const entry = import.meta.resolve(name);
    const module = (await import(entry)) as Record<string, unknown>;
    const found = optionsParameters(fileURLToPath(entry).replace(/\.js$/, ".d.ts")).filter(
      ({ name, parameters, at }) => !others.includes(name) && parameters[at].name !== "given",
    );
    assert.ok(found.length > 0);
    const wrong: string[] = [];
    for (const { name: path, at } of found) {
      const call = path.split(".").reduce<unknown>((from, part) => (from as Record<string, unknown>)[part], module);
      const args = Array.from({ length: at + 1 }, (_, i) => (i === at ? { nonsense: 1 } : undefined));
      const error = await Promise.resolve()
        .then(() => (call as (...args: unknown[]) => unknown)(...args))
        // Generators begin with their first element.
        .then((result) => (result as AsyncGenerator | undefined)?.next?.())
        .then(
          () => "accepted",
          (thrown: Error) => thrown.message,
        );
      if (!/there is no option "nonsense"/.test(error)) wrong.push(`${path}: ${error}`);
    }
    assert.equal(wrong.length, 0, wrong.join("\n"));
  });
