// The list of commands, in the order in which `weft --help` shows them.
import type { Command } from "commander";
import { add as scale } from "./scale.js";
import { add as trace } from "./trace.js";

export type AddCommand = (program: Command) => void;

export const commands: AddCommand[] = [scale, trace];
