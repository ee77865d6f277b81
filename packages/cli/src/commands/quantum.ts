// weft quantum: gates and controls from specification files. One file a subcommand; here they are only listed.
import type { Command } from "commander";
import { add as meta } from "./quantum-meta.js";
import { add as optimise } from "./quantum-optimise.js";

const help = `
Examples:
  weft quantum optimise pulse.yaml           a pulse by gradient, for one environment or an ensemble
  weft quantum meta --preset debug           meta-learned control over noise environments`;

export function add(program: Command): void {
  const quantum = program
    .command("quantum")
    .description("Differentiable simulation and control of quantum devices.")
    .addHelpText("after", help);
  for (const subcommand of [optimise, meta]) subcommand(quantum);
}
