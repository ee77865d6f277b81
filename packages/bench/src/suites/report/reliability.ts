// The page docs/reliability.md from the record of the drill.
import { median } from "@weft/formats/stats";
import type { DrillRecord, DrillRow } from "../drill.js";
import type { PreflightDrillRecord } from "../preflight.js";
import type { RecordHead } from "../record.js";

const head = `# Reliability

What happens when something breaks, measured by a drill that injects faults into real processes. Hosts are network, process and
host-name namespaces of one machine. A program computes with integers whose results are known; every step needs a sum over all
workers, so that every fault affects all of them. \`npm run bench -- drill\` runs it and writes \`bench/results/drill.json\`, from which
this page is generated; \`npm test\` runs one trial of each fault on one host.

- **right**: every element of the result was right, without intervention. **error**: the program got one clear error and no wrong result.
- **delay**: from the fault, halfway through the work, to the end of the program: the time to detect the fault, to repair, and to do the rest
  of the work.
- **left behind**: processes and names in shared memory that still existed after the program had ended.
`;

const tail = `
## What others document for the same faults

Taken from the documentation of Ray, Dask and PyTorch; not measured here.

| fault | Weft | Ray | Dask | PyTorch elastic |
| --- | --- | --- | --- | --- |
| a worker dies | its tensors are recomputed from their lineage on the others | tasks are run again and their objects reconstructed; actors only with \`max_restarts\`, without their state | tasks are run again on others; a task whose workers died several times fails | all workers are restarted; the script loads its checkpoint |
| a host dies or is unplugged | the same, after 4 to 5 s without a heartbeat | the same, after missed health checks | the same, after the worker's time to live | a change of membership: restart with the remaining nodes |
| the dispatcher (head, scheduler, rendezvous) dies | clients get an error, workers wait for the next one | the cluster fails, unless its state is stored in Redis | everything is lost | the rendezvous is lost with its node |
| the program itself dies | its tensors are freed, workers stay | objects that it owned are lost | its results are forgotten | the job ends |

Long computations need checkpoints in all of them; lineage is bounded here too ([cluster.md](cluster.md)).
`;

const shown = (seconds: readonly number[]): string =>
  seconds.length === 0
    ? "-"
    : `${median([...seconds]).toFixed(1)} s (${Math.min(...seconds).toFixed(1)} to ${Math.max(...seconds).toFixed(1)})`;

function line({ title, trials, expected, skipped }: DrillRow): string {
  if (skipped !== undefined) return `| ${title} | skipped: ${skipped} | | | | | |`;
  const count = (outcome: string): number => trials.filter((trial) => trial.outcome === outcome).length;
  const left = trials.flatMap((trial) => trial.left).length;
  const cells = [title, trials.length, count("right"), count("error"), count("wrong"), count("hang")];
  return `| ${cells.join(" | ")} | ${shown(trials.map(({ seconds }) => seconds))} | ${left === 0 ? "nothing" : left} | ${expected} |`;
}

/** What preflight named of what was slowed down. */
function preflightSection(record: RecordHead & PreflightDrillRecord): string {
  const { scenes, hardware, at } = record;
  const table = [...new Set(scenes.map(({ ranks }) => ranks))].map((ranks) => {
    const own = scenes.filter((scene) => scene.ranks === ranks);
    const faults = own.flatMap((scene) => scene.faults).length;
    const named = own.reduce((n, scene) => n + scene.named, 0);
    const wrong = own.flatMap((scene) => scene.wrong).length;
    const off = own.flatMap(({ steps }) => steps).map(({ predicted, measured }) => Math.abs(predicted / measured - 1));
    const within = off.filter((x) => x <= 0.15).length;
    const times = own.map(({ seconds }) => seconds);
    return `| ${ranks} | ${own.length} | ${faults} | ${named} | ${wrong} | ${shown(times)} | ${within} of ${off.length} |`;
  });
  return `
## Slow workers and links

\`npm run bench -- preflight\` slows workers down (a quota of 25% to 60% of a processor, or stopping them for the rest of the time), and
cables and links (30 to 150 megabits per second), up to four at a time on up to 16 hosts, and compares what \`weft preflight\` names with
that; one scene of each size has no fault. Steps that cross a slow link are predicted from what it measured.

Measured at ${at.slice(0, 10)} on ${hardware.processor}, ${hardware.cores} cores, with a load of ${hardware.loadBefore ?? "unknown"} before it.

| hosts | scenes | injected | named | named wrongly | seconds: median (range) | steps predicted within 15% |
| ---: | ---: | ---: | ---: | ---: | --- | ---: |
${table.join("\n")}
`;
}

/** The page as text. */
export function reliabilityPage(
  record: RecordHead & DrillRecord,
  preflight?: RecordHead & PreflightDrillRecord,
): string {
  const { at, hardware, rows } = record;
  const table = [
    "| fault | trials | right | error | wrong | hang | delay: median (range) | left behind | wanted |",
    "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |",
    ...rows.map(line),
  ];
  const where = `Measured at ${at.slice(0, 10)} on ${hardware.processor}, ${hardware.cores} cores, with a load of ${hardware.loadBefore ?? "unknown"} before it.`;
  return `${head}\n${where}\n\n${table.join("\n")}\n${preflight === undefined ? "" : preflightSection(preflight)}${tail}`;
}
