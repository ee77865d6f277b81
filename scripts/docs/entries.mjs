// What the site contains: the public entries of the packages with the introduction of each, and the order of the pages.

/** Public entries: name, source, and the text above the list of names (links are relative to the repository). */
export const entries = [
  {
    name: "@weft/core",
    source: "packages/core/src/index.ts",
    text: "Tensors, transforms (`grad`, `vmap`, `jit`), and CPU and CUDA devices. Guides: [tensors](docs/tensors.md), [gradients](docs/gradients.md), [GPUs](docs/gpu.md). [docs/ops.md](docs/ops.md) lists every function with its dtypes, devices and gradient.",
  },
  {
    name: "@weft/core/nn",
    source: "packages/core/src/nn/index.ts",
    text: "Layers of neural networks as pairs of functions: `init(options, key)` returns parameters, `apply(params, x)` computes the output.",
  },
  {
    name: "@weft/core/optim",
    source: "packages/core/src/optim/index.ts",
    text: "Optimizers and learning-rate schedules over trees of parameters.",
  },
  { name: "@weft/core/io", source: "packages/core/src/io/index.ts", text: "Readers and writers of tensor files." },
  {
    name: "@weft/cluster",
    source: "packages/cluster/src/index.ts",
    text: "Several devices: `connect` to a cluster, or `distributed` process groups. Guides: [several devices](docs/cluster.md), [sharding](docs/sharding.md), [recorded runs](docs/tape.md).",
  },
  {
    name: "@weft/models",
    source: "packages/models/src/index.ts",
    text: "Pretrained transformers: Hugging Face checkpoints, fine-tuning and generation. Guide: [models](docs/models.md).",
  },
  {
    name: "@weft/train",
    source: "packages/train/src/trainer/index.ts",
    text: "The trainer of text classifiers. Guide: [training](docs/training.md).",
  },
  {
    name: "@weft/quantum",
    source: "packages/quantum/src/index.ts",
    text: "Differentiable quantum systems, pulses, solvers, control and meta-learning. Guides: [quantum](docs/quantum.md), [noise, control and meta-learning](docs/meta.md).",
  },
  {
    name: "@weft/quantum/qutip",
    source: "packages/quantum/src/qutip/index.ts",
    text: "States, operators and solvers under the names of QuTiP. Guide: [from QuTiP](docs/from-qutip.md).",
  },
  {
    name: "@weft/lab",
    source: "packages/lab/src/index.ts",
    text: "Measurement, validation and diagnosis of scaling. Guides: [the lab](docs/lab.md), [measuring](docs/scale.md), [traces](docs/traces.md).",
  },
  {
    name: "@weft/ui",
    source: "packages/ui/src/index.ts",
    text: "The server of the local web app. Guide: [the web app](docs/ui.md).",
  },
  {
    name: "@weft/formats",
    source: "packages/formats/src/index.ts",
    text: "Schemas, types and readers of record, study and tape files. Guide: [the record format](docs/lab-format.md).",
  },
];

/** Pages of `docs/` in the order of the navigation, with their titles there. Pages that are not listed come last, in "More". */
export const groups = {
  Begin: {
    "tutorial-node": "Train in Node",
    "tutorial-scaling": "My eight GPUs are no faster",
    "tutorial-gate": "Optimize a gate",
    examples: "Examples",
    troubleshooting: "Troubleshooting",
    platforms: "Platforms",
    guides: "The four guides",
  },
  Tensors: {
    tensors: "Tensors",
    gradients: "Gradients",
    "control-flow": "Loops and branches",
    varying: "Sizes that vary",
    ops: "Functions",
    "array-api": "Array API standard",
    precision: "Precision",
    gpu: "GPUs",
    lanes: "Batches of small problems",
    performance: "Performance",
    settings: "Settings",
  },
  "Several devices": {
    cluster: "Clusters",
    security: "Security of a cluster",
    sharding: "Sharding",
    tape: "Recorded runs",
    reliability: "Reliability",
    training: "Training",
    models: "Pretrained models",
    ui: "The web app",
  },
  Lab: {
    lab: "The lab",
    scale: "Measuring a job",
    traces: "Traces",
    hangs: "Hangs",
    atlas: "Public results",
    "lab-format": "Record format",
  },
  Quantum: {
    quantum: "Quantum systems",
    "from-qutip": "From QuTiP",
    "quantum-peers": "Beside QuTiP",
    meta: "Control and meta-learning",
  },
  Project: {
    architecture: "Architecture",
    glossary: "Glossary",
    decisions: "Decisions",
    status: "Status",
    changelog: "Change log",
    contributing: "Contributing",
  },
};

/** The group of the navigation that holds the packages. */
export const apiGroup = "API reference";
