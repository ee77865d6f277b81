// Caches: hits for newly drawn tasks, bounds and statistics.
import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";
import * as weft from "@weft/core";
import { chooseSteps, controlFidelities, defaultProbes, prepareProblem, qubitFlip } from "../control/index.js";
import { MetaTrainer } from "../meta/index.js";
import { drawTasks, gammaTasks } from "../noise/index.js";
import { BoundedCache, cachedProgram, cacheStats, clearCaches, structureKey } from "./index.js";

describe("caches", () => {
  beforeEach(clearCaches);

  test("iterations with newly drawn tasks hit the cached program", () => {
    const trainer = new MetaTrainer({ preset: "debug", iterations: 12, policy: { width: 8 } });
    const before = cacheStats().programs!;
    trainer.step();
    const { compiles } = weft.session();
    for (let i = 0; i < 11; i++) trainer.step();
    const after = cacheStats().programs!;
    assert.equal(after.misses - before.misses, 1);
    assert.equal(after.hits - before.hits, 11);
    assert.equal(weft.session().compiles, compiles, "later steps compile nothing");
    assert.ok(after.bytes > before.bytes, "the program's scratch memory is counted");
  });

  test("an equal problem and new rates hit the cached operators and programs", () => {
    const fidelity = (seed: number): number => {
      const prepared = prepareProblem(qubitFlip({ segments: 12 }));
      const { rates } = drawTasks(gammaTasks, weft.key(seed), 4);
      const probes = defaultProbes(prepared, rates);
      return controlFidelities(prepared, chooseSteps(prepared, { dt: 0.1 }, probes), probes)[0]!;
    };
    const first = fidelity(1);
    const { programs, operators } = cacheStats();
    assert.notEqual(fidelity(2), first);
    assert.equal(cacheStats().programs!.misses, programs!.misses);
    assert.equal(cacheStats().programs!.hits, programs!.hits + 3);
    assert.deepEqual([cacheStats().operators!.misses, cacheStats().operators!.hits], [1, operators!.hits + 1]);
    assert.ok(operators!.bytes > 0);
    // A different structure misses.
    prepareProblem(qubitFlip({ segments: 13 }));
    assert.equal(cacheStats().operators!.misses, 2);
  });

  test("the least recently used entry is evicted first, by count and by bytes; clear removes all entries", () => {
    const cache = new BoundedCache<{ size: number }>("a test", { entries: 2, bytes: 100, sizeOf: (v) => v.size });
    const get = (key: string, size = 10): { size: number } => cache.get(key, () => ({ size }));
    const a = get("a");
    get("b");
    assert.equal(get("a"), a);
    get("c");
    assert.equal(get("a"), a, "a was used after b");
    assert.deepEqual(
      { ...cache.stats(), limits: null },
      { entries: 2, bytes: 20, hits: 2, misses: 3, evictions: 1, limits: null },
    );
    const grown = get("d", 95);
    assert.deepEqual([cache.stats().entries, cache.stats().bytes], [1, 95]);
    grown.size = 300;
    assert.equal(cache.stats().bytes, 300, "bytes are the current sizes");
    cache.clear();
    assert.equal(cacheStats()["a test"]!.entries, 0);
  });

  test("structure keys depend on the values in typed arrays and on their order", () => {
    assert.equal(structureKey({ a: Float64Array.of(1, 2) }), structureKey({ a: Float64Array.of(1, 2) }));
    assert.notEqual(structureKey({ a: Float64Array.of(1, 2) }), structureKey({ a: Float64Array.of(2, 1) }));
    const program = cachedProgram("double", () => (x: weft.Tensor) => x.mul(2));
    assert.equal(
      cachedProgram("double", () => (x: weft.Tensor) => x.mul(3)),
      program,
    );
    assert.equal(program(weft.tensor(4)).itemSync(), 8);
  });
});
