import assert from "node:assert/strict";
import { test } from "node:test";
import { formatRecord, parseRecord } from "./index.js";

test("a formatted record parses to itself", () => {
  const line = formatRecord({ v: 1, type: "step", rank: 3, step: 17, durationUs: 5210.5, samples: 32 });
  assert.equal(line.endsWith("\n"), true);
  assert.deepEqual(parseRecord(line), {
    ok: true,
    dropped: [],
    record: { v: 1, type: "step", rank: 3, step: 17, durationUs: 5210.5, samples: 32 },
  });
});

test("a line that cannot be used is refused with the reason", () => {
  const cases: [string, RegExp][] = [
    ['{"v":1,"type":"step","rank":0,"st', /not valid JSON/],
    ["[1,2]", /not a JSON object/],
    ['{"v":2,"type":"end","status":"ok"}', /version 2 is not 1/],
    ['{"v":1,"type":"stepp","rank":0}', /unknown record type "stepp"/],
    ['{"v":1,"type":"toString"}', /unknown record type "toString"/],
    ['{"v":1,"type":"step","rank":0,"step":1,"durationUs":"5"}', /durationUs should be number, is "5"/],
    ['{"v":1,"type":"step","rank":0,"step":1,"durationUs":null}', /durationUs should be number, is null/],
    ['{"v":1,"type":"epoch","epoch":1,"seconds":2,"rank":"a"}', /rank should be integer, is "a"/],
    ['{"v":1,"type":"facts","facts":[]}', /facts should be object/],
  ];
  for (const [line, expected] of cases) {
    const parsed = parseRecord(line);
    assert.equal(parsed.ok, false, line);
    if (!parsed.ok) assert.match(parsed.problem, expected);
  }
});
