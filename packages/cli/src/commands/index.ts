// The list of commands, and the groups in which `weft --help` shows them. A command's module is loaded when the command is
// used: `weft --help` and `weft --version` load neither the engine nor the lab. A test compares this list with the modules.
import type { Command } from "commander";

interface CommandEntry {
  /** Name and arguments, as `weft --help` shows them. */
  usage: string;
  description: string;
  /** The module of the command: its default export adds the command to a program. */
  load: () => Promise<{ default: (program: Command) => void }>;
}

export const commands: Readonly<Record<string, CommandEntry>> = {
  bench: {
    usage: "bench [options]",
    description: "Measure how products, batches and MLPs scale over the devices of this machine, and explain why.",
    load: () => import("./bench.js"),
  },
  train: {
    usage: "train [options] <config>",
    description: "Train the model of a configuration, on one device or several.",
    load: () => import("./train.js"),
  },
  classify: {
    usage: "classify [options] <run> [texts...]",
    description: "Classify texts with a trained run, or with a model of a Hugging Face folder.",
    load: () => import("./classify.js"),
  },
  export: {
    usage: "export [options] <run> <folder>",
    description: "Write the parameters of a run as one folder of .safetensors files.",
    load: () => import("./export.js"),
  },
  generate: {
    usage: "generate [options] <model> [prompt]",
    description: "Generate text with a language model from a Hugging Face folder.",
    load: () => import("./generate.js"),
  },
  tune: {
    usage: "tune [options] <config>",
    description: "Find the fastest settings of a training configuration by short measured runs.",
    load: () => import("./tune.js"),
  },
  quantum: {
    usage: "quantum",
    description: "Differentiable simulation and control of quantum devices.",
    load: () => import("./quantum.js"),
  },
  data: { usage: "data", description: "Download and inspect data sets.", load: () => import("./data.js") },
  server: {
    usage: "server [options]",
    description: "Run the dispatcher that workers and clients connect to.",
    load: () => import("./server.js"),
  },
  worker: {
    usage: "worker [options]",
    description: "Run a worker: one device of this machine for a dispatcher.",
    load: () => import("./worker.js"),
  },
  preflight: {
    usage: "preflight [options]",
    description: "Measure every worker and link of a cluster before a job, and name the slow ones.",
    load: () => import("./preflight.js"),
  },
  top: {
    usage: "top [options]",
    description: "Watch the workers of a dispatcher: operations, bytes, idle time, GPU utilization.",
    load: () => import("./top.js"),
  },
  tape: {
    usage: "tape",
    description: "Read, export, replay and compare recorded runs.",
    load: () => import("./tape.js"),
  },
  scale: {
    usage: "scale [options] [command...]",
    description: "Run a command at several device counts, measure it, and analyze how it scales.",
    load: () => import("./scale.js"),
  },
  analyze: {
    usage: "analyze [options] <paths...>",
    description: "Is this scaling study valid, how well does it scale, why, and what would help?",
    load: () => import("./analyze.js"),
  },
  diagnose: {
    usage: "diagnose [options] <paths...>",
    description: "Find performance problems: evidence, cause, fix and predicted effect.",
    load: () => import("./diagnose.js"),
  },
  trace: {
    usage: "trace [options] <files...>",
    description: "Show the time breakdown of traces of PyTorch, JAX, Nsight Systems or rocprofv3, per rank.",
    load: () => import("./trace.js"),
  },
  hang: {
    usage: "hang [options] <paths...>",
    description: "Explain a stuck distributed job: culprit rank, collective, source line and kind.",
    load: () => import("./hang.js"),
  },
  import: {
    usage: "import [options] <kind> <dir>",
    description: "Import public results (MLPerf Training, vTrain) into a DuckDB file.",
    load: () => import("./import.js"),
  },
  audit: {
    usage: "audit [options] <dirs...>",
    description: "Find published results that contradict themselves or their neighbors.",
    load: () => import("./audit.js"),
  },
  predict: {
    usage: "predict [options] [path]",
    description: "Predict throughput or time at other device counts, with 80% intervals.",
    load: () => import("./predict.js"),
  },
  lint: {
    usage: "lint [options] <files...>",
    description: "Find mistakes in YAML configurations and SLURM scripts.",
    load: () => import("./lint.js"),
  },
  ledger: {
    usage: "ledger [options]",
    description: "Show recorded predictions and their outcomes.",
    load: () => import("./ledger.js"),
  },
  init: {
    usage: "init [options] [goal] [folder]",
    description: "Write a configuration, a job script and the commands to type, for one of five goals.",
    load: () => import("./init.js"),
  },
  compare: {
    usage: "compare [options] <first> <second>",
    description: "Compare two trainings, quantum results or benchmarks: what differs, and which is better.",
    load: () => import("./compare.js"),
  },
  completion: {
    usage: "completion <shell>",
    description: "Print a script that completes commands and options in a shell.",
    load: () => import("./completion.js"),
  },
  schema: {
    usage: "schema [options] [kind]",
    description: "Print the JSON Schema of a kind of YAML file, for completion and checks in editors.",
    load: () => import("./schema.js"),
  },
  ui: {
    usage: "ui [options] [runs]",
    description: "Show runs, scaling studies, clusters and quantum controls live in a browser.",
    load: () => import("./ui.js"),
  },
  doctor: {
    usage: "doctor [options]",
    description: "Report which devices and libraries Weft finds on this machine, what is missing, and how to fix it.",
    load: () => import("./doctor.js"),
  },
};

/** The groups of `weft --help`. */
const groups: Readonly<Record<string, readonly string[]>> = {
  "Find out why a job is slow:": ["scale", "analyze", "diagnose", "trace", "hang", "predict", "lint", "ledger"],
  "Train and use models:": ["train", "classify", "generate", "export", "tune", "data"],
  "Quantum devices:": ["quantum"],
  "Several devices:": ["bench", "server", "worker", "preflight", "top", "tape"],
  "Public results:": ["import", "audit"],
  "See and set up:": ["init", "ui", "compare", "doctor", "schema", "completion"],
};

/** Adds the used command in full, and of the others only what `weft --help` shows, unless `all` are wanted. */
export async function addCommands(program: Command, args: readonly string[], all = false): Promise<void> {
  const words = args.filter((word) => !word.startsWith("-"));
  const used = words[0] === "help" ? words[1] : words[0];
  for (const [heading, names] of Object.entries(groups)) {
    program.commandsGroup(heading);
    for (const name of names) {
      const { usage, description, load } = commands[name];
      if (all || name === used) {
        (await load()).default(program);
        continue;
      }
      const listed = program.command(usage.replace(" [options]", "")).description(description);
      // The list shows "[options]" for a command that has any.
      if (usage.includes(" [options]")) listed.option("--json");
    }
  }
}
