// The sections of docs/performance.md, from stored results. Reasons for missed rows come from bench/notes.json and are
// printed only while the row is missed.
import { type BenchRecord, judgeBench } from "@weft/lab/internal/bench";
import type { PlacementRow } from "../placements.js";
import type { ContestRecord, RowResult } from "../record.js";
import { currentName, gpuRecord, quantumRows, type StoredFiles } from "./stored.js";
import { comparisonLines, markdownTable, showMs, showVerdict } from "./table.js";

function machineLines({ hardware: h, versions, at, settings, absent }: ContestRecord): string[] {
  const { node, compiler, ...contestants } = versions;
  const listed = Object.entries(contestants as Record<string, object>).map(
    ([name, facts]) =>
      `${name} (${Object.entries(facts)
        .filter(([, value]) => value !== null)
        .map(([key, value]) => `${key} ${value}`)
        .join(", ")})`,
  );
  const missing = Object.entries(absent).map(([name, why]) => `${name}: ${why}`);
  return [
    `- Machine: ${h.processor}, ${h.cores} cores (${h.simd}${h.virtual ? ", virtual" : ""}), ${h.memoryGiB} GiB, ${h.system}, Linux ${h.kernel}`,
    `- Software: Node ${node}, ${compiler}; ${listed.join("; ")}`,
    `- Measured ${at.slice(0, 10)}, ${settings.rounds} interleaved rounds of ${settings.seconds} s for each side; rounds in which other processes took more than ${(settings.foreignLimit as number) * 100}% of the cores were repeated where possible`,
    ...(missing.length > 0 ? [`- Not available: ${missing.join("; ")}`] : []),
  ];
}

/** How many rounds stayed disturbed although they were repeated. */
function disturbedRounds(record: ContestRecord): string[] {
  const shares = record.rows.flatMap((row) =>
    Object.values(row.times ?? {}).flatMap(({ rounds = [] }) => rounds.map(({ foreign }) => foreign)),
  );
  const disturbed = shares.filter((share) => share > (record.settings.foreignLimit as number)).length;
  const text = `- Rounds that stayed disturbed: ${disturbed} of ${shares.length}; they count only where fewer than three rounds were quiet`;
  return shares.length === 0 ? [] : [text];
}

const isMissed = (row: RowResult): boolean =>
  Object.values(row.ratios ?? {}).some(({ met }) => met === false) || row.limit?.met === false || Boolean(row.wrong);

function explainMissed(row: RowResult, notes: Record<string, string>): string[] {
  const info = row.times?.weft?.info as { kernels: number; profile?: { name: string; calls: number; us: number }[] };
  const profile = info?.profile ?? [];
  const total = profile.reduce((sum, { us }) => sum + us, 0);
  const kernels = profile
    .slice(0, 10)
    .map(({ name, calls, us }) => [name, calls, us.toFixed(1), `${((100 * us) / total).toFixed(0)}%`]);
  return [
    `### Missed: ${row.title}`,
    "",
    ...(notes[row.id] === undefined ? [] : [notes[row.id], ""]),
    ...(profile.length === 0
      ? []
      : [
          `One call runs ${info.kernels} kernels and library calls; the most expensive, in the fastest of five profiled calls:`,
          "",
          ...markdownTable(["kernel", "calls", "us", "share"], kernels, "---:"),
          "",
        ]),
  ];
}

function cpuSection(record: ContestRecord | undefined, notes: Record<string, string>): string[] {
  if (record === undefined) return [];
  const columns = ["work", "Weft", "quartiles", "rate", "against", "its time", "ratio", "range", "wanted", "verdict"];
  const rows = comparisonLines(record).map((line) => Object.values(line) as string[]);
  const starts = record.rows.find(({ id }) => id === "cached")?.times?.weft?.starts;
  // Peak of a process that did nothing else; the peak of the serving process is that of all rows before.
  const peak = starts?.[0]?.peakBytes;
  return [
    "## CPU",
    "",
    ...machineLines(record),
    ...disturbedRounds(record),
    "",
    ...markdownTable(columns, rows),
    "",
    ...(peak === undefined
      ? []
      : [`- The transformer step alone holds ${(peak / 2 ** 20).toFixed(1)} MiB of device memory at most.`, ""]),
    ...record.rows.filter(isMissed).flatMap((row) => explainMissed(row, notes)),
  ];
}

function gpuTime(ms: number | undefined): string {
  if (ms === undefined) return "-";
  return ms < 0.1 ? `${(ms * 1e3).toFixed(1)} us` : `${ms.toFixed(ms < 10 ? 3 : 1)} ms`;
}

function gpuSection(file: StoredFiles[string] | undefined): string[] {
  if (file === undefined) return [];
  const record = gpuRecord(file);
  const peersOf = (row: RowResult) => Object.keys(row.ratios).map((name) => ({ name, ...row.times[name] }));
  const all = record.rows.flatMap(peersOf);
  const met = (ok: boolean | null): string => (ok ? "met" : "missed");
  const rows = record.rows.map((row) => {
    const own = row.times.weft;
    const required = Object.values(row.ratios).filter(({ wanted }) => wanted !== null);
    return [
      row.title,
      row.wrong === null ? gpuTime(own?.ms) : `wrong: ${row.wrong.slice(0, 60)}`,
      own?.spread === undefined ? "" : `${gpuTime(own.spread.min)} to ${gpuTime(own.spread.max)}`,
      row.flops !== undefined && own !== undefined ? `${(row.flops / own.ms / 1e9).toFixed(0)} TFLOP/s` : "",
      peersOf(row)
        .map(({ name, ms, rounds, measured }) => `${name} ${gpuTime(ms)}${rounds ? " *" : measured ? " +" : ""}`)
        .join(", "),
      [
        ...(row.limit === undefined ? [] : [`at most ${gpuTime(row.limit.ms)}: ${met(row.limit.met)}`]),
        ...required.map((r) => `${r.wanted}x ${r.name}: ${met(r.met)} (${r.ratio.toFixed(2)}x)`),
      ].join("; "),
    ];
  });
  const products = record.rows.flatMap(({ id, ratios }) =>
    id.startsWith("matmul-") && ratios.torch !== undefined ? [ratios.torch.ratio] : [],
  );
  const mean = Math.exp(products.reduce((sum, ratio) => sum + Math.log(ratio), 0) / Math.max(1, products.length));
  const show = (v: unknown): string => (typeof v === "object" ? Object.values(v ?? {}).join(" ") : String(v));
  const versions = Object.entries(record.versions).map(([name, v]) => `${name} ${show(v)}`);
  return [
    "## GPU",
    "",
    `- ${record.hardware.gpu}; ${versions.join(", ")}; measured ${record.at.slice(0, 10)} with \`npm run bench:gpu\`, both sides in one run`,
    ...(all.some(({ rounds }) => rounds)
      ? ["- Peers with * took turns with Weft, round by round; the others ran before or after it"]
      : []),
    ...[...new Set(all.flatMap(({ measured }) => measured ?? []))].map(
      (when) => `- Peers with + were measured in an earlier run on such a machine, ${when}`,
    ),
    "- Times are medians; every result was checked (Freivalds' test, closed forms, the exact program, golden values) before it was timed",
    ...(products.length > 0
      ? [`- Matrix products against PyTorch: geometric mean ${mean.toFixed(3)}x over ${products.length} rows`]
      : []),
    ...Object.entries(record.absent).map(([name, why]) => `- Not available: ${name}: ${why}`),
    "",
    ...markdownTable(["work", "Weft", "range", "rate", "peers", "wanted"], rows),
    "",
  ];
}

/** One table of a contest, with the machine, remarks, and reasons of missed targets. */
function contestSection(
  title: string,
  record: ContestRecord | undefined,
  remarks: readonly string[],
  notes: Record<string, string>,
): string[] {
  if (record === undefined) return [];
  const columns = ["work", "Weft", "quartiles", "rate", "against", "its time", "ratio", "range", "wanted", "verdict"];
  const rows = comparisonLines(record).map((line) => Object.values(line) as string[]);
  const reasons = record.rows.filter((row) => isMissed(row) && notes[row.id] !== undefined);
  return [
    `## ${title}`,
    "",
    ...machineLines(record).map((text) => text.replace(/; rounds in which other processes.*$/, "")),
    ...remarks,
    "",
    ...markdownTable(columns, rows),
    "",
    ...reasons.map((row) => `- ${row.title}: ${notes[row.id]}`),
    ...(reasons.length > 0 ? [""] : []),
  ];
}

/** Rows of the general suite have reasons of their own on the CPU, whose keys start with "cpu:". */
const notesOfCpu = (notes: Record<string, string>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(notes).flatMap(([key, text]) => (key.startsWith("cpu:") ? [[key.slice("cpu:".length), text]] : [])),
  );

/** A record in which rows of a later run take the place of those of the same work. */
function withLater(record: ContestRecord, later: ContestRecord | undefined): ContestRecord {
  if (later === undefined) return record;
  const rows = new Map(
    [...record.rows, ...later.rows.map((row) => ({ ...row, title: `${row.title} (later)` }))].map((row) => [
      row.id,
      row,
    ]),
  );
  return { ...record, rows: [...rows.values()] };
}

/** The general suite: one line per row and peer. */
const generalSection = (
  title: string,
  record: ContestRecord | undefined,
  later: ContestRecord | undefined,
  notes: Record<string, string>,
): string[] =>
  contestSection(
    title,
    record && withLater(record, later),
    [
      "- Work that nothing was tuned for (`npm run bench -- general`): results are compared with PyTorch's before anything is timed",
      "- `torch` is the fastest attention backend in rows of attention, eager PyTorch otherwise",
      ...(later === undefined
        ? []
        : [
            `- (later): ${later.rows.length} rows, those that are new, missed their target or have new kernels among them, come from a run of ${later.at.slice(0, 10)} on the same kind of machine, with all contestants in it`,
          ]),
    ],
    notes,
  );

const middleSection = (where: string, record: ContestRecord | undefined, notes: Record<string, string>): string[] =>
  contestSection(
    `Quantum systems of middle size, ${where}`,
    record,
    [
      "- Coupled three-level cavities, the first one driven, each with a decay channel: density matrices of D x D complex128 numbers, 100 Runge-Kutta steps (`npm run bench -- quantum-middle`)",
      "- Values and gradients are compared with JAX's, means of trajectories with the master equation, before anything is timed",
    ],
    notes,
  );

function shardTime(seconds: number): string {
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(0)} us`;
}

const percent = (x: number | null | undefined): string =>
  x === null || x === undefined ? "-" : `${(x * 100).toFixed(0)}%`;

const shardColumns =
  "row,devices,compute,range,speedup,efficiency,of independent workers,of one device with these cores,one call alone,end to end,speedup,moved,why".split(
    ",",
  );

/** One section for each record of `weft bench`. */
function shardSection(record: BenchRecord): string[] {
  const { verdicts, summaries } = judgeBench(record);
  const { hardware: h } = record;
  const rows = verdicts
    .filter((v) => v.clock === "compute")
    .map((v) => {
      const whole = verdicts.find((w) => w.clock === "endToEnd" && w.row === v.row && w.result === v.result);
      const isBaseline = v.class === "baseline";
      const alone = v.result.alone ?? [];
      return [
        v.row.label,
        `${v.result.devices}${v.result.simulated ? " (predicted)" : ""}`,
        shardTime(v.seconds),
        `${shardTime(v.range[0])} to ${shardTime(v.range[1])}`,
        isBaseline ? "baseline" : `${v.speedup.toFixed(2)}x`,
        isBaseline ? "" : percent(v.efficiency),
        percent(v.machineEfficiency),
        percent(v.sameCores),
        alone.length > 0 ? shardTime([...alone].sort((a, b) => a - b)[alone.length >> 1]) : "-",
        whole === undefined ? "-" : shardTime(whole.seconds),
        whole === undefined || whole.class === "baseline" ? "" : `${whole.speedup.toFixed(2)}x`,
        `${(v.result.bytesMoved / 1e6).toFixed(1)} MB`,
        [v.cause, v.advice].filter((t) => t !== "" && t !== "nothing held it back").join("; "),
      ];
    });
  const perWorker = record.coresPerWorker === null ? "" : `, ${record.coresPerWorker} core per worker`;
  return [
    `## Sharding: ${record.device}${perWorker}, ${h.cores} cores${record.suite === "quick" ? ", --quick" : ""}`,
    "",
    `- Machine: ${h.processor}; measured ${record.at.slice(0, 10)} with \`weft bench\`, medians of ${record.repeats} calls after ${record.warmup} for warm-up, ${record.precision}`,
    '- Efficiency is the speedup divided by the number of devices; "of independent workers" compares with N times the slowest of N workers that ran the same row at the same time and shared nothing',
    ...(record.rows.some((row) => row.results.some((r) => r.inFlight !== undefined))
      ? [
          '- Compute: calls back to back, on one device as on many, inputs resident and results left where they are; "one call alone" waits for each call; "of one device with these cores" compares with one process that has the cores of all workers',
        ]
      : []),
    ...summaries.map(
      (s) =>
        `- ${s.devices} devices, ${s.clock === "compute" ? "compute" : "end to end"}${s.simulated ? " (predicted)" : ""}: average ${s.average.toFixed(2)}x, minimum ${s.minimum.toFixed(2)}x, maximum ${s.maximum.toFixed(2)}x over ${s.rows} rows`,
    ),
    "",
    ...markdownTable(shardColumns, rows),
    "",
  ];
}

const threeDigits = (seconds: number): string => `${(seconds * 1e3).toPrecision(3)} ms`;

function plannerSection(files: StoredFiles): string[] {
  const names = Object.keys(files).filter((name) => /^planner(-\d+)?$/.test(name));
  const rows = names.sort().flatMap((name) =>
    // biome-ignore lint/suspicious/noExplicitAny: stored JSON
    files[name].rows.map((row: any) => {
      const ratio = row.predictedSeconds / row.measuredSeconds;
      return [
        files[name].processor ?? files[name].hardware.processor,
        files[name].devices,
        row.program,
        row.devices === 1 ? "one device" : `${row.devices} devices`,
        `${row.planMilliseconds.toFixed(0)} ms`,
        threeDigits(row.predictedSeconds),
        threeDigits(row.measuredSeconds),
        ratio.toFixed(2),
        Math.abs(ratio - 1) <= 0.15 ? "yes" : "NO",
      ];
    }),
  );
  const columns = "machine,workers,program,planned for,planning,predicted,measured,ratio,within 15%".split(",");
  if (rows.length === 0) return [];
  return [
    "## Predicted step times",
    "",
    "- By `npm run bench -- planner`: the planner's choice and one device, predicted from measured rates before they run; medians over rounds",
    "",
    ...markdownTable(columns, rows),
    "",
  ];
}

function placementsSection({ placements }: StoredFiles): string[] {
  if (placements === undefined) return [];
  const rows = (placements.rows as PlacementRow[]).map((row) => [
    `${row.model}, ${row.rows} x ${row.length}`,
    `${row.hosts} x ${row.perHost}`,
    row.memory === null ? "none" : `${(row.memory / 1e9).toFixed(0)} GB`,
    row.placement,
    `${row.stepSeconds.toPrecision(3)} s`,
    `${(row.bytes / 1e9).toPrecision(3)} GB`,
    `${(row.planMilliseconds / 1e3).toFixed(2)} s`,
  ]);
  return [
    "## Plans of training steps",
    "",
    "- By `npm run bench -- placements`: steps in bfloat16 with float32 parameters on simulated hosts with H200 devices, 400 Gbit/s between hosts; planning time without tracing, median of rounds",
    "",
    ...markdownTable("step,hosts x devices,memory limit,placement,predicted step,memory,planned in".split(","), rows),
    "",
  ];
}

function collectivesSection({ collectives }: StoredFiles): string[] {
  if (collectives === undefined) return [];
  const { machine, at, source, allreduce, roundtrip } = collectives;
  type Times = { weftMs: number; openmpiMs: number; ratio: number };
  type Reduced = { ranks: number; megabytes: number; inPlace: Times; outOfPlace: Times };
  const reduced = (allreduce as Reduced[]).flatMap(({ ranks, megabytes, inPlace, outOfPlace }) =>
    Object.entries({ "in place": inPlace, "out of place": outOfPlace })
      .filter(([, { ratio }]) => ratio !== null)
      .map(([how, { weftMs, openmpiMs, ratio }]) => [
        `${megabytes} MB ${how}`,
        ranks,
        threeDigits(weftMs / 1e3),
        threeDigits(openmpiMs / 1e3),
        ratio.toFixed(2),
        "2x",
        showVerdict(ratio >= 2),
      ]),
  );
  type Trip = { workers: number; medianMs: number; p90Ms: number; p99Ms: number };
  const trips = (roundtrip as Trip[]).map(({ workers, medianMs, p90Ms, p99Ms }) => [
    `${workers} worker${workers === 1 ? "" : `s, ${workers - 1} idle`}`,
    ...[medianMs, p90Ms, p99Ms].map((t) => threeDigits(t / 1e3)),
    "0.5 ms",
    showVerdict(medianMs < 0.5),
  ]);
  return [
    "## Collectives and round trips",
    "",
    `- ${machine.processor}, ${machine.cores} cores, ${machine.mpi}; ${at.slice(0, 10)}; ${source}`,
    "",
    ...markdownTable(["all-reduce", "ranks", "Weft", "OpenMPI", "ratio", "wanted", "verdict"], reduced),
    "",
    ...markdownTable(["round trip of a tiny operation", "median", "90%", "99%", "wanted", "verdict"], trips),
    "",
  ];
}

function quantumSection(files: StoredFiles): string[] {
  const rows = quantumRows(files);
  const showRatio = (ratio: number): string => (ratio >= 100 ? ratio.toFixed(0) : ratio.toPrecision(3));
  const compared = rows
    .filter(({ row }) => row.published === undefined && row.times.weft !== undefined)
    .flatMap(({ where, row }) => {
      const [work, own] = [`${row.id}: ${row.title}, ${where}`, showMs(row.times.weft.ms)];
      const lines = Object.entries(row.ratios).map(([name, { name: title, wanted }]) => {
        const ratio = row.times[name].ms / row.times.weft.ms;
        const verdict = showVerdict(wanted === null ? null : ratio >= wanted);
        const required = wanted === null ? "" : `${wanted}x`;
        return [work, own, title, showMs(row.times[name].ms), showRatio(ratio), required, verdict];
      });
      return lines.length > 0 ? lines : [[work, own, "-", "-", "-", "", ""]];
    });
  if (compared.length === 0) return [];
  const published = rows.flatMap(({ where, row: { title, times, published: figures } }) => {
    if (figures === undefined || times.weft === undefined) return [];
    const { by, ...numbers } = figures;
    const fidelity = times.weft.info?.fidelity as number | undefined;
    const text = Object.entries(numbers).map(([name, value]) => `${name} ${value}`);
    const own = `${showMs(times.weft.ms)}${fidelity === undefined ? "" : `, fidelity ${fidelity.toFixed(4)}`}`;
    return [[`${title}, ${where}`, own, text.join(", "), by]];
  });
  return [
    "## Quantum",
    "",
    "- Values and gradients; checked against golden values or an independent method before they were timed; CPU rows on two cores, GPU rows on one H200, both sides in one run",
    "- The Pauli chain is a model of two-level qubits given by Pauli matrices, without a circuit and without an eigenvalue problem; it is not the fluxonium chain of `Chain.fluxonium`",
    "",
    ...markdownTable(["work", "Weft", "against", "its time", "ratio", "wanted", "verdict"], compared),
    "",
    "Beside figures that others published, on their machines (two-level systems, cavities, GRAPE):",
    "",
    ...markdownTable(["work", "Weft", "published", "by"], published),
    "",
  ];
}

type WorkersRow = {
  workers: number;
  failed?: string;
  used: number;
  seconds: { median: number };
  alone?: { median: number };
  independent: number[];
  efficiency: number;
  right: boolean;
  collectives: [string, number][];
};

function showMoved(collectives: readonly [string, number][]): string {
  const kinds = [...new Set(collectives.map(([kind]) => kind))];
  const total = collectives.reduce((sum, [, n]) => sum + n, 0);
  const bytes = total >= 1e3 ? `${(total / 1e3).toFixed(1)} kB` : `${Math.round(total)} B`;
  return kinds.length === 0 ? "nothing" : `${kinds.join(", ")}: ${bytes} in ${collectives.length}`;
}

/** Quantum programs on several workers; judged at eight workers, and only where dividing is worth it. */
function quantumWorkersSection(record: StoredFiles[string] | undefined): string[] {
  if (record === undefined) return [];
  const { hardware: h, wanted } = record;
  const groups = Object.values(record.rows as Record<string, { title: string; small?: string; counts: WorkersRow[] }>);
  const lines = groups.flatMap(({ title, small, counts }) =>
    counts.map((row) => {
      const name = currentName(title);
      if (row.failed !== undefined)
        return [name, row.workers, "-", "-", "-", "-", "-", "", `FAILED: ${row.failed.split("\n")[0].slice(0, 80)}`];
      const isJudged = row.workers === 8 && small === undefined;
      const verdict = isJudged ? showVerdict(row.right && row.efficiency >= wanted) : "";
      return [
        name,
        row.used < row.workers ? `${row.workers} (${row.used} used)` : row.workers,
        threeDigits(row.seconds.median),
        row.alone === undefined ? "-" : threeDigits(row.alone.median),
        threeDigits(Math.max(...row.independent)),
        row.efficiency.toFixed(2),
        showMoved(row.collectives),
        isJudged ? wanted : "",
        small === undefined ? verdict : "too small to divide",
      ];
    }),
  );
  const columns = "work,workers,a call,one by one,slowest independent,efficiency,moved,wanted,verdict".split(",");
  return [
    "## Quantum programs on several workers",
    "",
    `- Machine: ${h.processor}, ${h.cores} cores; measured ${record.at.slice(0, 10)} with \`npm run bench -- quantum-workers\`, one core per worker, value and gradient`,
    "- Divided by the planner. Efficiency is the time of the slowest of N workers that each run the whole program at the same time, divided by N times the time of N workers that share it; both in turns, the median of the turns' ratios",
    '- "a call" issues the next one before the last is done, as an optimizer does; "one by one" waits for each',
    ...(record.note === undefined ? [] : [`- ${record.note}`]),
    ...groups.flatMap(({ title, small }) => (small === undefined ? [] : [`- ${currentName(title)}: ${small}.`])),
    "",
    ...markdownTable(columns, lines),
    "",
  ];
}

/** What a user meets in the first hour, and steps beside busy neighbors with the slowdown that these cause. */
function firstHourSection(record: StoredFiles[string] | undefined): string[] {
  if (record === undefined) return [];
  const { hardware: h, versions, at } = record;
  const all = record.rows as FirstHourRow[];
  const slowdown = ({ id, busy, times }: FirstHourRow, who: string): string => {
    const idle = all.find((row) => row.busy === 0 && row.id === id.replace(/\d+$/, "0"))?.times[who];
    const time = times[who];
    return busy === 0 || idle === undefined || time === undefined ? "" : (time.meanMs / idle.meanMs).toFixed(1);
  };
  const cells = (row: FirstHourRow): unknown[] => {
    const { weft, torch } = row.times;
    const expected = row.busy === 0 ? "" : ((h.cores + row.busy) / h.cores).toFixed(1);
    // Rare long calls are what neighbors cause, so that those rows are means.
    const time = (t: typeof weft | undefined): string =>
      t === undefined ? "-" : showMs(row.busy > 0 ? t.meanMs : t.ms);
    return [row.title, row.wrong ?? time(weft), time(torch), slowdown(row, "weft"), slowdown(row, "torch"), expected];
  };
  const columns = ["work", "Weft", "PyTorch eager", "slowdown of Weft", "of PyTorch", "lost share explains"];
  return [
    "## The first hour",
    "",
    `- Machine: ${h.processor}, ${h.cores} cores; Node ${versions.node}, PyTorch ${versions.torch?.version ?? "absent"}; measured ${at.slice(0, 10)} with \`npm run bench -- first-hour\`, each row in a process of its own`,
    ...(h.loadBefore > h.cores / 4
      ? [
          `- Other jobs used the machine during this run (load ${h.loadBefore.toFixed(1)} on ${h.cores} cores at its start): Weft and PyTorch took turns row by row while that load changed, so that no row is that of an idle machine, and the slowdowns are not those of the listed processes alone`,
        ]
      : []),
    "- Medians; means beside busy processes, each of which is an endless loop. The lost share explains a slowdown of (cores + busy processes) / cores",
    "",
    ...markdownTable(columns, all.map(cells), "---:"),
    "",
  ];
}

interface FirstHourRow {
  id: string;
  title: string;
  busy: number;
  wrong: string | null;
  times: Record<string, { ms: number; meanMs: number }>;
}

/** Whole models of @weft/models: a line per row, with memory where both sides know it. */
function modelsSection(title: string, record: ContestRecord | undefined): string[] {
  if (record === undefined) return [];
  const gigabytes = (bytes: unknown): string => (typeof bytes === "number" ? `${(bytes / 1e9).toFixed(2)} GB` : "");
  const lines = record.rows.map(({ title, times, ratios }) => {
    const peers = Object.entries(ratios).map(
      ([name, { ratio }]) => `${name} ${showMs(times[name].ms)} (${ratio.toFixed(2)}x)`,
    );
    const [own, theirs] = [times["weft"], times["torch.compile"]].map((time) => gigabytes(time?.info?.["peakBytes"]));
    return [title, times["weft"] === undefined ? "" : showMs(times["weft"].ms), peers.join(", "), own, own && theirs];
  });
  return [
    `## ${title}`,
    "",
    `- One H200 (${record.hardware.gpu}); measured ${record.at.slice(0, 10)} with \`npm run bench -- models\`, medians of three rounds in turns; ratios are the peer's time divided by Weft's`,
    "- Memory is that of parameters, optimizer state, batch and one step; decoding times are per token",
    "",
    ...markdownTable(["work", "Weft", "PyTorch", "memory of Weft", "of torch.compile"], lines),
    "",
  ];
}

/** The whole page. */
export const performancePage = (files: StoredFiles, notes: Record<string, string>): string[] => [
  "# Performance",
  "",
  "Generated by `npm run bench:report` from `bench/results/`; run `npm run bench:cpu` for numbers of your own machine.",
  "",
  "A ratio is the peer's time divided by Weft's in the same round: above 1 Weft is faster. Medians over rounds; the range",
  "is the smallest and the largest of the rounds. Every result was checked (against exact values, Freivalds' test, or the",
  "losses of all contestants) before it was timed. Weft's single operations dispose their result at once; training steps",
  "donate parameters and optimizer state. Both sides use the same cores and as many threads.",
  "",
  ...cpuSection(files.cpu, notes),
  ...firstHourSection(files["first-hour"]),
  ...gpuSection(files.gpu),
  ...generalSection("GPU, general work", files.general, files["general-again"], notes),
  ...modelsSection("GPU, models people know", files.models),
  ...modelsSection("GPU, generation of text, later run", files["models-decode"]),
  ...generalSection("CPU, general work", files["general-cpu"], undefined, notesOfCpu(notes)),
  ...Object.values(files)
    .filter(({ format }) => format === "weft-bench")
    .flatMap(shardSection),
  ...plannerSection(files),
  ...placementsSection(files),
  ...collectivesSection(files),
  ...quantumSection(files),
  ...middleSection("one GPU", files["quantum-middle"], notes),
  ...middleSection("CPU", files["quantum-middle-cpu"], notes),
  ...quantumWorkersSection(files["quantum-shard"]),
];
