// weft quantum: gates and controls from specification files. One file a subcommand; here they are only listed.
import type { Command } from "commander";
import { add as meta } from "./quantum-meta.js";

const help = `
Examples:
  weft quantum meta --preset debug           meta-learned control over noise environments`;

export function add(program: Command): void {
  const quantum = program
    .command("quantum")
    .description("Differentiable simulation and control of quantum devices.")
    .addHelpText("after", help);
  for (const subcommand of [meta]) subcommand(quantum);
}
