// What `weft quantum profile` concludes: the component that does not scale is named first, unless others used the machine.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type ProfileRow, rankProfiles, rankSentence } from "./quantum-profile-report.js";

/** Milliseconds of the components of a call on one device and on two. */
function rowsOf(times: Record<string, [number, number]>): ProfileRow[] {
  return Object.entries(times).flatMap(([component, both]) =>
    both.map((ms, i): ProfileRow => {
      const speedup = both[0] / ms;
      return {
        pattern: "states",
        devices: i + 1,
        component,
        ms,
        compileMs: 0,
        bytes: 8,
        speedup,
        serialFraction: null,
      };
    }),
  );
}

test("components are ranked by the time that perfect scaling would save", () => {
  const rows = rowsOf({
    "system build": [1, 1],
    "evolution forward": [50, 26],
    "evolution and gradient": [100, 51],
    "eigen-solve": [40, 44],
    fidelity: [0.1, 0.1],
    transfers: [0.2, 0.4],
  });
  const ranked = rankProfiles(rows, "states");
  // 44 - 20 ms, 51 - 50 ms, 0.4 - 0.1 ms, 0.1 - 0.05 ms.
  assert.deepEqual(
    ranked.map(({ component, lost }) => [component, Number(lost.toFixed(2))]),
    [
      ["eigen-solve", 24],
      ["evolution and gradient", 1],
      ["transfers", 0.3],
      ["fidelity", 0.05],
    ],
  );
  assert.match(
    rankSentence(ranked, null),
    /^eigen-solve gets slower: 40 ms on one device, 44 ms on 2 \(0\.909x\), 46% of a call; /,
  );
  assert.match(rankSentence(ranked, "others used 40% of the cores"), /^cannot say .* others used 40% .* eigen-solve/);
});

test("where all large components scale, that is what is said", () => {
  const rows = rowsOf({
    "evolution and gradient": [100, 51],
    "eigen-solve": [40, 21],
    fidelity: [0.1, 0.1],
    transfers: [0.2, 0.4],
  });
  assert.match(
    rankSentence(rankProfiles(rows, "states"), null),
    /^every component that takes 5% of a call or more scales to 2 devices/,
  );
  const single = rankProfiles(
    rows.filter(({ devices }) => devices === 1),
    "states",
  );
  assert.match(rankSentence(single, null), /^evolution and gradient takes most of a call: 100 ms, 71% of a call/);
});
