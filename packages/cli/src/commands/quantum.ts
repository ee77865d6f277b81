// weft quantum: the list of its subcommands.
import type { Command } from "commander";
import bench from "./quantum-bench.js";
import meta from "./quantum-meta.js";
import optimize from "./quantum-optimize.js";
import pictures from "./quantum-pictures.js";
import profile from "./quantum-profile.js";
import run from "./quantum-run.js";
import tune from "./quantum-tune.js";

const help = `
Examples:
  weft quantum run gate.yaml                 spectrum, evolution, fidelity and gradient
  weft quantum run gate.yaml --plot gate.png  plot pulses and populations
  weft quantum pictures gate.yaml            levels, pulses, populations, error budget as SVG
  weft quantum optimize gate.yaml            optimize pulses, devices, or a pulse for an ensemble
  weft quantum meta --preset debug           meta-learn control over noise environments
  weft quantum tune gate.yaml                choose method, steps and pieces of time by measurement
  weft quantum profile gate.yaml --devices 1 2
  weft quantum bench`;

export default function add(program: Command): void {
  const quantum = program
    .command("quantum")
    .description("Differentiable simulation and control of quantum devices.")
    .addHelpText("after", help);
  for (const subcommand of [run, pictures, optimize, meta, tune, profile, bench]) subcommand(quantum);
}
