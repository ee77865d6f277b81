// The verdicts of preflight on made-up measurements: faults of known kind and place among noise, busy neighbors and spread.
import assert from "node:assert/strict";
import { test } from "node:test";
import { seededRandom } from "@weft/formats/stats";
import type { Measurement } from "./clocks.js";
import { effectiveSeconds, judgePreflight, type LinkRow, type WorkerRow } from "./preflight-judge.js";

interface Fault {
  what: "worker" | "host" | "link";
  places: number[];
  /** How many times slower. */
  by: number;
  how?: "quota" | "stopped" | "clock";
}

/** Samples of work that takes `cpu` seconds, on a processor that others use for a share of the time. */
function samples(random: () => number, cpu: number, fault: Fault | undefined, count: number): Measurement[] {
  return Array.from({ length: count }, () => {
    const busy = random() < 0.5 ? 0 : 3 * random();
    const own = cpu * (1 + 0.06 * random()) * (fault?.how === "clock" ? fault.by : 1);
    const away = own * busy;
    const throttled = fault?.how === "quota" ? own * Math.max(0, fault.by - 1) : 0;
    const stopped = fault?.how === "stopped" ? own * (fault.by - 1) : 0;
    return {
      ...{ measure: 1, cpu: own, wait: away + throttled, throttled, wall: own + away + throttled + stopped },
      idle: 0,
      quota: fault?.how === "quota" ? 1 / fault.by : null,
    };
  });
}

function cluster(random: () => number, count: number, faults: readonly Fault[]): [WorkerRow[], LinkRow[]] {
  const has = (what: Fault["what"], ...places: number[]): Fault | undefined =>
    faults.find((fault) => fault.what === what && fault.places.join() === places.join());
  const workers = Array.from({ length: count }, (_, i): WorkerRow => {
    const fault = has("worker", i);
    const of = (cpu: number, repeats: number): Measurement[] => samples(random, cpu, fault, repeats);
    return {
      ...{ worker: `w${i}`, host: `h${i}`, threads: 1, peers: "cpu" },
      samples: { products: of(0.25, 5), memory: of(0.005, 6), loader: of(0.03, 5) },
    };
  });
  const links: LinkRow[] = [];
  for (let b = 0; b < count; b++)
    for (let a = 0; a < b; a++) {
      const slow = Math.max(has("host", a)?.by ?? 1, has("host", b)?.by ?? 1, has("link", a, b)?.by ?? 1);
      const busy = Math.max(has("worker", a)?.by ?? 1, has("worker", b)?.by ?? 1);
      const noisy = (seconds: number, n: number): number[] =>
        Array.from({ length: n }, () => seconds * (1 + 0.25 * random() + (random() < 0.3 ? 4 * random() : 0)));
      links.push({
        workers: [`w${a}`, `w${b}`],
        hosts: [`h${a}`, `h${b}`],
        latency: noisy(4e-4, 9),
        seconds: noisy(7e-3 * slow * busy, 8),
      });
    }
  return [workers, links];
}

test("faults of every kind are named, and nothing else", () => {
  const random = seededRandom(1);
  const pick = (n: number): number => Math.floor(n * random());
  let [injected, named, wrong] = [0, 0, 0];
  for (let trial = 0; trial < 60; trial++) {
    const count = [4, 8, 16][trial % 3];
    const faults: Fault[] = [];
    const free = Array.from({ length: count }, (_, i) => i).sort(() => random() - 0.5);
    for (let i = 0; i < (trial % 6 === 5 ? 0 : count / 4); i++) {
      const by = 1.6 + 4 * random();
      const kind = pick(5);
      const how = (["quota", "stopped", "clock"] as const)[kind];
      if (kind < 3) faults.push({ what: "worker", places: [free.pop()!], by, how });
      else if (kind === 3) faults.push({ what: "host", places: [free.pop()!], by: by + 1 });
      else if (free.length > 1)
        faults.push({ what: "link", places: [free.pop()!, free.pop()!].sort((a, b) => a - b), by: by + 1 });
    }
    const { findings } = judgePreflight(...cluster(random, count, faults));
    injected += faults.length;
    const texts = faults.map(({ what, places }) => `${what} ${places.map((place) => `w${place}`).join()}`);
    const said = findings.map(({ what, workers }) => `${what} ${workers.join()}`);
    named += texts.filter((text) => said.includes(text)).length;
    wrong += said.filter((text) => !texts.includes(text)).length;
  }
  assert.ok(injected > 90);
  assert.ok(named >= 0.95 * injected, `${named} of ${injected} were named`);
  assert.ok(wrong <= 0.02 * injected, `${wrong} others were named`);
});

test("time that other processes take away does not count, time that a quota takes does", () => {
  const sample = { measure: 1, wall: 1, cpu: 0.25, wait: 0.75, throttled: 0, idle: 0, quota: null };
  assert.equal(effectiveSeconds(sample, 1), 0.25);
  assert.equal(effectiveSeconds({ ...sample, throttled: 0.75 }, 1), 1);
  // A quota that the neighbors hide is still one.
  assert.equal(effectiveSeconds({ ...sample, quota: 0.5 }, 1), 0.5);
  assert.equal(effectiveSeconds({ ...sample, wait: 0 }, 1), 1);
  // Nobody takes anything away while a processor is idle.
  assert.equal(effectiveSeconds({ ...sample, idle: 1 }, 1), 1);
});

test("two that differ, and a crowded worker, are undecided", () => {
  const random = seededRandom(2);
  const [rows, links] = cluster(random, 2, [{ what: "worker", places: [0], by: 2, how: "clock" }]);
  const two = judgePreflight(rows, links);
  assert.deepEqual(two.findings, []);
  assert.match(two.undecided.join(), /w0: products: .*/);
  assert.match(two.undecided.join(), /links between hosts: 1 cannot be compared/);
  const [many] = cluster(random, 4, [{ what: "worker", places: [1], by: 2, how: "clock" }]);
  for (const sample of many[1].samples.products) {
    sample.wait += 9 * sample.cpu;
    sample.wall += 9 * sample.cpu;
  }
  const crowded = judgePreflight(many, []);
  assert.deepEqual(crowded.findings, []);
  assert.match(crowded.undecided.join(), /w1: .*other processes use its processors/);
});

test("links that vary, or were measured twice only, are not named", () => {
  const random = seededRandom(3);
  const rows = (samples: number): LinkRow[] =>
    cluster(random, 16, [{ what: "link", places: [2, 5], by: 3 }])[1].map((row) => ({
      ...row,
      seconds: row.seconds.slice(0, samples).map((seconds) => seconds * (1 + 4 * random())),
    }));
  const few = judgePreflight([], rows(2));
  assert.deepEqual(few.findings, []);
  assert.match(few.undecided.join(), /no time to look again|^$/);
  assert.ok(judgePreflight([], rows(8)).findings.length <= 1);
});

test("of three hosts the one with slow links is named", () => {
  const { findings } = judgePreflight(...cluster(seededRandom(4), 3, [{ what: "host", places: [1], by: 25 }]));
  assert.deepEqual(
    findings.map(({ what, workers }) => [what, ...workers]),
    [["host", "w1"]],
  );
});
