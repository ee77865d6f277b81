// Result files as they are stored. Older files have other shapes and short codes as row ids; here they become records of
// the current format, so that the sections know one format and one set of names.
import type { ContestRecord, RowResult } from "../record.js";

/** Result files by name without ".json"; each has the format of the suite that wrote it. */
// biome-ignore lint/suspicious/noExplicitAny: stored JSON of several older formats
export type StoredFiles = Record<string, any>;

/** Row ids and titles of older result files, and the names of today. */
const renamed: readonly [RegExp, string][] = [
  [/^w1-(\d+)/, "lindblad-ensemble-$1"],
  [/^lindblad-(\d+)$/, "lindblad-ensemble-$1"],
  [/^whole-/, "end-to-end-"],
  [/^tokenise$/, "tokenize"],
  [/^w2-/, "maml-"],
  [/^w3-/, "controlled-z-"],
  [/^w4-/, "pauli-chain-"],
  [/^w5$/, "two-level"],
  [/^w6-/, "cavities-"],
  [/^w7-/, "grape-"],
  [/^W1, /, "lindblad-ensemble, "],
  [/^W2, /, "maml, "],
  [/^W4 n=/, "pauli-chain n="],
  [/^chain n=/, "Pauli chain n="],
];

/** The current name of a row, or its id where that is current. */
export function currentName(id: string): string {
  const rule = renamed.find(([pattern]) => pattern.test(id));
  return rule === undefined ? id : id.replace(...rule);
}

const isCurrent = (file: { rows?: unknown; kind?: string } | undefined): boolean =>
  file !== undefined && Array.isArray(file.rows) && file.kind !== "gpu-table";

type OldPeer = { peer: string; ms: number; live: boolean; ratio: number; measured?: string };
type OldVerdict = { peer?: string; wantedRatio?: number; milliseconds?: number; met: boolean };

/** The GPU table; peers that took turns with Weft have rounds. */
export function gpuRecord(file: StoredFiles[string]): ContestRecord {
  if (isCurrent(file)) return file as ContestRecord;
  const rows = file.rows.map((row: StoredFiles[string]): RowResult => {
    const verdicts = row.verdicts as OldVerdict[];
    const limit = verdicts.find(({ milliseconds }) => milliseconds !== undefined);
    const times: RowResult["times"] = row.times.weft === undefined ? {} : { weft: row.times.weft };
    const ratios: RowResult["ratios"] = {};
    for (const { peer, ms, live, ratio, measured } of row.peers as OldPeer[]) {
      const verdict = verdicts.find((v) => v.peer === peer);
      times[peer] = { ms, ...(live && { rounds: [] }), ...(measured !== undefined && { measured }) };
      ratios[peer] = { name: peer, ratio, wanted: verdict?.wantedRatio ?? null, met: verdict?.met ?? null };
    }
    return {
      id: currentName(row.id),
      title: row.title,
      wrong: row.wrong,
      problems: {},
      times,
      ratios,
      ...(limit !== undefined && { limit: { ms: limit.milliseconds!, met: limit.met } }),
      ...(row.flops !== undefined && { flops: row.flops }),
    };
  });
  return { ...file, kind: "gpu", device: "cuda", rows };
}

/** Lines of PyTorch in meta-gpu.json, with the name of the peer and the required ratio. */
const oldMamlPeers: Record<string, [string, number | null]> = {
  "w2-32": ["PyTorch, all tasks batched, step by step", 100],
  "w2-32-graph": ["the same as one CUDA graph", null],
  "w2-32-tree": ["PyTorch, steps as matrices that are multiplied in a tree", null],
  "w2-32-tree-graph": ["the same as one CUDA graph: the best that we could write", 100],
};

function oldMetaGpuRows(file: StoredFiles[string]): RowResult[] {
  type Line = { name?: string; row?: string; ms: number };
  const own = (file.weft as Line[]).find(({ name }) => name === "w2-32");
  if (own === undefined) return [];
  const times: RowResult["times"] = { weft: { ms: own.ms } };
  const ratios: RowResult["ratios"] = {};
  for (const [id, [name, wanted]] of Object.entries(oldMamlPeers)) {
    const line = (file.torch as Line[]).find(({ row }) => row === id);
    if (line === undefined) continue;
    const ratio = line.ms / own.ms;
    times[id] = { ms: line.ms };
    ratios[id] = { name, ratio, wanted, met: wanted === null ? null : ratio >= wanted };
  }
  const title = "one FOMAML iteration, 32 tasks, K = 5";
  return [{ id: "maml-32", title, wrong: null, problems: {}, times, ratios }];
}

function oldQuantumRows(file: StoredFiles[string], wanted: number | null): RowResult[] {
  return Object.entries(file.rows as StoredFiles).flatMap(([id, row]): RowResult[] => {
    if (row.failed !== undefined || id === "w4-memory") return [];
    const times: RowResult["times"] = {
      weft: { ms: row.ms, info: row.fidelity === undefined ? {} : { fidelity: row.fidelity } },
    };
    const ratios: RowResult["ratios"] = {};
    if (row.peer?.ms !== undefined) {
      const ratio = row.peer.ms / row.ms;
      times.jax = { ms: row.peer.ms };
      const met = wanted === null ? null : ratio >= wanted;
      ratios.jax = { name: "JAX scan, same machine", ratio, wanted, met };
    }
    const published = row.published === undefined ? {} : { published: row.published };
    const title = currentName(row.work);
    return [{ id: currentName(id), title, wrong: null, problems: {}, times, ratios, ...published }];
  });
}

/** Required ratios of the ensembles on a GPU against JAX. */
const ensembleRequirement = (b: number): number | null => (b === 1 ? 400 : b >= 4096 ? 1000 : null);

/** The ensembles of the GPU table, judged against JAX. */
function gpuEnsembles(file: StoredFiles[string]): RowResult[] {
  return gpuRecord(file)
    .rows.filter(({ id }) => /^lindblad-ensemble-\d+$/.test(id))
    .map((row) => {
      const required = ensembleRequirement(Number(row.id.split("-").at(-1)));
      const ratios = Object.entries(row.ratios).map(([peer, ratio]) => {
        const wanted = peer.startsWith("jax") ? required : null;
        return [peer, { ...ratio, wanted, met: wanted === null ? null : ratio.ratio >= wanted }];
      });
      return { ...row, ratios: Object.fromEntries(ratios) };
    });
}

/** All quantum rows with the kind of device that they ran on, in the order of the table. */
export function quantumRows(files: StoredFiles): { where: "CPU" | "GPU"; row: RowResult }[] {
  const cpu = (rows: RowResult[]) => rows.map((row) => ({ where: "CPU" as const, row }));
  const gpu = (rows: RowResult[]) => rows.map((row) => ({ where: "GPU" as const, row }));
  const { meta, quantum } = files;
  const [metaGpu, quantumGpu] = [files["meta-gpu"], files["quantum-gpu"]];
  // Rows of the older file are dropped once the suite that replaces it has been run.
  const oldMeta = meta === undefined || isCurrent(quantum) ? [] : (meta.rows as RowResult[]);
  return [
    ...cpu(
      oldMeta
        .filter(({ ratios }) => Object.keys(ratios).length > 0)
        .map((row) => ({ ...row, id: currentName(row.id) })),
    ),
    ...gpu(files.gpu === undefined ? [] : gpuEnsembles(files.gpu)),
    ...gpu(metaGpu === undefined || isCurrent(quantumGpu) ? [] : oldMetaGpuRows(metaGpu)),
    ...cpu(quantum === undefined ? [] : isCurrent(quantum) ? quantum.rows : oldQuantumRows(quantum, null)),
    ...gpu(quantumGpu === undefined ? [] : isCurrent(quantumGpu) ? quantumGpu.rows : oldQuantumRows(quantumGpu, 50)),
    // Rows of the suite in files of their own: the fluxonium chains.
    ...cpu((files["quantum-fluxonium"]?.rows ?? []) as RowResult[]),
    ...gpu((files["quantum-fluxonium-gpu"]?.rows ?? []) as RowResult[]),
  ];
}
