// Specifications of gates: YAML files of a folder, and examples that come with Weft.
import { readdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { plainText } from "@weft/formats/text";
import type { GateRow, RunRow } from "../wire/index.js";
import { readSmall } from "./files.js";
import { gateFile, type RunPlace } from "./row.js";

const mostFiles = 200;
const mostBytes = 1 << 18;

const examples: Readonly<Record<string, string>> = {
  "transmon X": `# An X gate of a transmon in its rotating frame: the pulse as given leaves an error; optimize it.
name: transmon X
device:
  parts:
    q: {kind: duffing, frequency: 0, anharmonicity: -0.3, levels: 4}
pulses:
  - {on: q, name: x, operator: n, shape: piecewise, length: 10, values: [0.05, 0.1, 0.15, 0.2, 0.25, 0.25, 0.2, 0.15, 0.1, 0.05]}
  - {on: q, name: y, operator: phi, shape: piecewise, length: 10, values: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}
evolution: {steps: 200, method: pwcExpm}
target: {gate: X, compensation: virtual-z}
learn: [q.x.values, q.y.values]
`,
  "qubit with decay": `# A flip of a qubit that relaxes and dephases: move the rates.
name: qubit with decay
device:
  parts: {q: {kind: qubit, frequency: 0}}
pulses:
  - {on: q, name: ux, operator: x, shape: piecewise, length: 1, values: [1.5707963, 1.6, 1.5, 1.55]}
  - {on: q, name: uy, operator: y, shape: piecewise, length: 1, values: [0.2, 0.1, 0, -0.1]}
decay:
  - {on: q, operator: lower, rate: 0.025}
  - {on: q, operator: z, rate: 0.025}
evolution: {steps: 60, method: rk4}
target: {from: "0", to: "1"}
`,
};

/** A specification with its text. */
interface GateFile {
  row: GateRow;
  text: string;
}

const isNumbers = (value: unknown): value is number | number[] =>
  typeof value === "number" ||
  (Array.isArray(value) && value.length <= 10_000 && value.every((x) => typeof x === "number"));

/** The values that an optimization has reached; none while it has written none. */
function reachedValues({ root, folder }: RunPlace): GateRow["values"] {
  try {
    const value: unknown = JSON.parse(readSmall(root, join(folder, "parameters.json"), mostBytes) ?? "{}");
    if (typeof value !== "object" || value === null) return {};
    return Object.fromEntries(
      Object.entries(value)
        .slice(0, 200)
        .filter((entry): entry is [string, number | number[]] => isNumbers(entry[1])),
    );
  } catch {
    return {};
  }
}

/** The gates that runs optimize, with the values that they have reached. */
function gatesOfRuns(runs: readonly { place: RunPlace; row: RunRow | null }[]): GateFile[] {
  return runs.flatMap(({ place, row }) => {
    const text = row?.gate === true ? readSmall(place.root, join(place.folder, gateFile), mostBytes) : null;
    if (row === null || text === null) return [];
    const name = `${row.id === "." ? row.name : row.id} (run)`;
    const live = row.state === "running";
    return [{ row: { id: `run:${row.id}`, name, source: "run" as const, values: reachedValues(place), live }, text }];
  });
}

/** The specifications of a folder, those that runs optimize, and the examples. */
export function findGates(folder: string, runs: readonly { place: RunPlace; row: RunRow | null }[] = []): GateFile[] {
  const found: GateFile[] = [];
  try {
    const root = realpathSync(folder);
    for (const name of readdirSync(root).sort().slice(0, 5000)) {
      if (found.length >= mostFiles || !/\.ya?ml$/.test(name)) continue;
      const text = readSmall(root, join(root, name), mostBytes);
      if (text === null || !/^\s*device\s*:/m.test(text) || !/^\s*target\s*:/m.test(text)) continue;
      found.push({ row: { id: `file:${name}`, name: plainText(name), source: "file" }, text });
    }
  } catch {
    // No such folder: the examples remain.
  }
  const own = Object.entries(examples).map(
    ([name, text]): GateFile => ({ row: { id: `example:${name}`, name, source: "example" }, text }),
  );
  return [...found, ...gatesOfRuns(runs).slice(0, mostFiles), ...own];
}
