// The list of commands, in the order in which `weft --help` shows them.
import type { Command } from "commander";
import { add as analyze } from "./analyze.js";
import { add as bench } from "./bench.js";
import { add as classify } from "./classify.js";
import { add as data } from "./data.js";
import { add as diagnose } from "./diagnose.js";
import { add as doctor } from "./doctor.js";
import { add as ledger } from "./ledger.js";
import { add as lint } from "./lint.js";
import { add as predict } from "./predict.js";
import { add as quantum } from "./quantum.js";
import { add as scale } from "./scale.js";
import { add as server } from "./server.js";
import { add as tape } from "./tape.js";
import { add as top } from "./top.js";
import { add as trace } from "./trace.js";
import { add as train } from "./train.js";
import { add as tune } from "./tune.js";
import { add as worker } from "./worker.js";

export type AddCommand = (program: Command) => void;

export const commands: AddCommand[] = [
  bench,
  train,
  classify,
  tune,
  quantum,
  data,
  server,
  worker,
  top,
  tape,
  scale,
  analyze,
  diagnose,
  trace,
  predict,
  lint,
  ledger,
  doctor,
];
