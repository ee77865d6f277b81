// The quantum tables of docs/performance.md (W1 to W7; W8 has a page of its own), from what bench/meta.mjs, bench/meta-gpu.mjs,
// bench/gpu.mjs and bench/quantum.mjs wrote. Figures that others published stand beside ours and are not ratios.
const line = (cells) => `| ${cells.join(" | ")} |`;
const ms = (value) =>
  value === undefined ? "-" : value < 0.1 ? `${(value * 1e3).toPrecision(3)} us` : `${value.toPrecision(3)} ms`;
const times = (ratio) => (ratio >= 100 ? ratio.toFixed(0) : ratio.toPrecision(3));
const verdict = (ratio, wanted) => (wanted === undefined ? "" : ratio >= wanted ? "met" : "MISSED");
const columns = ["work", "Weft", "against", "its time", "ratio", "wanted", "verdict"];
const row = (work, weft, name, time, wanted) =>
  line([
    work,
    ms(weft),
    name,
    ms(time),
    times(time / weft),
    wanted === undefined ? "" : `${wanted}x`,
    verdict(time / weft, wanted),
  ]);

const cpuRows = ({ rows }) =>
  rows.flatMap(({ id, title, times: t, ratios }) =>
    Object.entries(ratios).map(([peer, { name, wanted }]) =>
      row(`${id.toUpperCase().replace("-", ", ")}: ${title}, CPU`, t.weft.ms, name, t[peer].ms, wanted ?? undefined),
    ),
  );

const aboveOne = (B) => (B === 1 ? 400 : B >= 4096 ? 1000 : undefined);

/** W1 as the GPU table has it: the peers' rows of the same work. */
const ensembleRows = ({ rows }) =>
  rows
    .filter(({ id }) => /^lindblad-\d+$/.test(id))
    .flatMap(({ id, title, times: t, peers }) => {
      const B = Number(id.slice(9));
      return peers.map(({ peer, ms: time }) =>
        row(`W1: ${title}, GPU`, t.weft.ms, peer, time, peer.startsWith("jax") ? aboveOne(B) : undefined),
      );
    });

const metaPeers = {
  "w2-32": ["PyTorch, all tasks batched, step by step", 100],
  "w2-32-graph": ["the same as one CUDA graph", undefined],
  "w2-32-tree": ["PyTorch, steps as matrices that are multiplied in a tree", undefined],
  "w2-32-tree-graph": ["the same as one CUDA graph: the best that we could write", 100],
};
function metaRows({ weft, torch }) {
  const ours = weft.find(({ name }) => name === "w2-32").ms;
  return Object.entries(metaPeers).flatMap(([id, [name, wanted]]) => {
    const peer = torch.find((r) => r.row === id);
    return peer === undefined
      ? []
      : [row("W2: one FOMAML iteration, 32 tasks, K = 5, GPU", ours, name, peer.ms, wanted)];
  });
}

const onDevice = { cpu: "CPU", cuda: "GPU" };
function chainRows({ device, rows }) {
  const where = onDevice[device.split(":")[0]];
  return Object.entries(rows)
    .filter(([id, { failed }]) => /^w4-\d/.test(id) && failed === undefined)
    .map(([, { work, ms: ours, peer }]) =>
      peer?.ms === undefined
        ? line([`W4: ${work}, ${where}`, ms(ours), "-", "-", "-", "", ""])
        : row(`W4: ${work}, ${where}`, ours, "JAX scan, same machine", peer.ms, where === "GPU" ? 50 : undefined),
    );
}

const publishedRows = ({ device, rows }) =>
  Object.values(rows)
    .filter(({ published }) => published !== undefined)
    .map(({ work, ms: ours, fidelity, published: { by, ...figures } }) =>
      line([
        `${work}, ${onDevice[device.split(":")[0]]}`,
        `${ms(ours)}${fidelity === undefined ? "" : `, fidelity ${fidelity.toFixed(4)}`}`,
        Object.entries(figures)
          .map(([name, value]) => `${name} ${value}`)
          .join(", "),
        by,
      ]),
    );

/** `files`: the results by file name without ".json"; what is not there is left out. */
export function quantumSection(files) {
  const { meta, gpu, quantum } = files;
  const metaGpu = files["meta-gpu"];
  const quantumGpu = files["quantum-gpu"];
  const chains = [quantum, quantumGpu].filter((file) => file !== undefined);
  const body = [
    ...(meta === undefined ? [] : cpuRows(meta)),
    ...(gpu === undefined ? [] : ensembleRows(gpu)),
    ...(metaGpu === undefined ? [] : metaRows(metaGpu)),
    ...chains.flatMap(chainRows),
  ];
  if (body.length === 0) return [];
  const memory = quantum?.rows["w4-memory"];
  return [
    "## Quantum",
    "",
    "- Values and gradients; checked against golden values or an independent method before they were timed; CPU rows on two cores, GPU rows on one H200, both sides in one run",
    ...(memory?.note === undefined ? [] : [`- W4 memory: ${memory.note}`]),
    "",
    line(columns),
    line(columns.map(() => "---")),
    ...body,
    "",
    "Beside what others published, on their machines (W5, W6, W7):",
    "",
    line(["work", "Weft", "published", "by"]),
    line(["---", "---", "---", "---"]),
    ...chains.flatMap(publishedRows),
    "",
  ];
}
