// Preflight on hosts (namespaces): a worker with a processor quota and a host with a slow cable are named, and nothing else; the
// rates are saved, and the planner uses them.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { Hosts, noHosts } from "@weft/testing/hosts";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { measuredLinks, saveReport } from "./network-rates.js";
import { preflight } from "./preflight.js";
import { ratesFor, workerSpeeds } from "./rates.js";
import { skip as noCompiler, testWorker } from "./workers.testkit.js";

const main = fileURLToPath(new URL("./main.js", import.meta.url));
const skip = noCompiler || noHosts;
const cache = mkdtempSync(join(tmpdir(), "weft-preflight-"));
const ends: (() => void)[] = [() => rmSync(cache, { recursive: true })];
after(() => {
  for (const end of ends.reverse()) end();
});

/** Runs with rates of a cache of its own. */
function withCache<T>(work: () => T): T {
  const before = { dir: process.env.WEFT_CACHE_DIR, rates: process.env.WEFT_RATES };
  process.env.WEFT_CACHE_DIR = cache;
  process.env.WEFT_RATES = "measured";
  try {
    return work();
  } finally {
    for (const [name, value] of [
      ["WEFT_CACHE_DIR", before.dir],
      ["WEFT_RATES", before.rates],
    ] as const)
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
  }
}

test("a slow worker and a slow host are named, and the planner gets their rates", {
  skip,
  timeout: 180_000,
}, async (t) => {
  const hosts = new Hosts(4);
  ends.push(() => hosts.remove());
  if (!hosts.slow(3, 50) || !hosts.limit(1, 0.35)) {
    t.skip("this kernel cannot limit processors or cables");
    return;
  }
  const dispatcher = await Dispatcher.start({ host: hosts.address(0), port: 0, ...hosts.security });
  ends.push(() => dispatcher.stop());
  for (const host of [1, 2, 3, 4]) {
    const place = { host: hosts.address(0), port: dispatcher.port, dataHost: hosts.address(host), ...testWorker };
    const line = [process.execPath, main, "worker", JSON.stringify({ ...place, ...hosts.security })];
    await once(hosts.start(host, line).stdout!, "data");
  }
  const cluster = await connect(`${hosts.address(0)}:${dispatcher.port}`, hosts.security);
  try {
    const report = await preflight(cluster, { repeats: 1, seconds: 150, save: false });
    const [limited, , slow] = cluster.workers.map(({ id }) => id);
    assert.deepEqual(
      report.findings.map(({ what, workers }) => [what, ...workers]),
      [
        ["worker", limited],
        ["host", slow],
      ],
      JSON.stringify(report.findings),
    );
    assert.match(report.findings[0].evidence, /its control group allows 0.35 processors/);
    assert.equal(report.links.length, 6);
    withCache(() => {
      const workers = [...cluster.workers];
      assert.equal(measuredLinks(workers), null);
      assert.ok(saveReport(report, workers));
      const [first, ...others] = workerSpeeds(workers);
      assert.ok(first === 1 && others.every((speed) => speed > 1.5), `${[first, ...others]}`);
      assert.match(ratesFor(workers).name, /preflight/);
      // 50 megabits are 6.25 MB/s: all four are as slow as the cable of one, the others are not.
      const speed = (some: typeof workers): number => measuredLinks(some)!.allReduce.at(-1)!.bandwidth;
      assert.ok(speed(workers) < 13e6, `${speed(workers)}`);
      assert.ok(speed([workers[1], workers[3]]) > 20e6, `${speed([workers[1], workers[3]])}`);
    });
  } finally {
    await cluster.close();
    weft.setDevice("cpu");
  }
});
