// Specifications of gates: YAML files of a folder, and examples that come with Weft.
import { readdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { plainText } from "@weft/formats/text";
import type { GateRow } from "../wire/index.js";
import { readSmall } from "./files.js";

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
export interface GateFile {
  row: GateRow;
  text: string;
}

/** The specifications of a folder, and the examples. */
export function findGates(folder: string): GateFile[] {
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
  return [...found, ...own];
}
