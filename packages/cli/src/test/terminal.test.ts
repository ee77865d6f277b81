// Every command's smallest real use on a terminal and in a pipe: a pipe sees no escape codes; a terminal of 72 columns gets text that
// fits, and verdicts in color unless NO_COLOR is set.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { brotliDecompressSync } from "node:zlib";
import { key, setDevice } from "@weft/core";
import { defineModel, savePretrained } from "@weft/models";
import { repositoryRoot } from "@weft/testing/examples";
import { commands } from "../commands/index.js";

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "weft-terminal-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const columns = 72;

interface Use {
  /** Arguments; NEW becomes another name in each use. */
  args: string;
  exit?: number[];
  /** What it prints in either case. */
  says: RegExp;
  /** A terminal gets this in a color. */
  colored?: RegExp;
}

const gate = `device: {parts: {q: {kind: qubit, frequency: 0.5}}}
pulses: [{on: q, name: x, operator: x, shape: cosine, length: 20, amplitude: 0.28, omega: 3.14159265359}]
evolution: {steps: 100}
target: {gate: X, compensation: virtual-z}
learn: [q.x.amplitude]
`;
const tiny = `name: tiny
model: {vocab_size: 200, d_model: 8, n_heads: 2, num_layers: 1, dim_feedforward: 16, max_seq_len: 8}
data: {dataset: synthetic}
training: {epochs: 1, global_batch: 16}
optimizer: {learning_rate: 0.001}
`;

/** The smallest use of every command. Commands that serve until a signal comes end by themselves with a wrong option. */
const uses: Record<string, Use[]> = {
  analyze: [
    { args: "analyze experiments --no-pictures", exit: [3], says: /AGNews: NOT VALID/, colored: /IMDB: valid/ },
  ],
  diagnose: [{ args: "diagnose experiments", exit: [3], says: /\[invalid\]/, colored: /\[invalid\]/ }],
  predict: [{ args: "predict experiments --study IMDB --at 8", says: /80% interval/ }],
  ledger: [{ args: "ledger", says: /predictions/ }],
  lint: [{ args: "lint wrong.sh", exit: [1], says: /16 processes/, colored: /error:/ }],
  trace: [{ args: "trace trace.json", says: /rank/ }],
  hang: [{ args: "hang hangs", exit: [0, 1], says: /rank/i }],
  scale: [{ args: "scale --devices 1,2 --dry-run --launcher sbatch -- train {n}", says: /runs/ }],
  import: [{ args: "import vtrain vtrain --db atlas.duckdb", says: /1 rows in atlas\.duckdb/ }],
  audit: [{ args: "audit vtrain", exit: [1], says: /no results found/ }],
  train: [{ args: "train tiny.yaml --max-steps 2 --tape 2 --output runs/NEW", says: /done after 2 steps/ }],
  classify: [{ args: "classify runs/pipe word", says: /word/ }],
  export: [{ args: "export runs/pipe exported/NEW", says: /tensors of step 2/ }],
  compare: [{ args: "compare runs/pipe runs/pipe", says: /settings: no difference/ }],
  tape: [{ args: "tape stats runs/pipe/tape-rank0.jsonl", exit: [0, 1], says: /./ }],
  generate: [{ args: "generate model abc --tokens 4 --device reference", says: /4 tokens/ }],
  tune: [{ args: "tune missing.yaml", exit: [1], says: /missing\.yaml does not exist/, colored: /weft:/ }],
  data: [{ args: "data list", says: /ag_news/ }],
  quantum: [
    { args: "quantum run gate.yaml --no-gradient", says: /infidelity/ },
    { args: "quantum optimize gate.yaml --iterations 2 --out runs/gate", says: /infidelity .* -> / },
    { args: "quantum tune gate.yaml --methods rk4 trotter2", says: /^evolution: /m },
    { args: "quantum meta --preset debug --explain", says: /one iteration/ },
    { args: "quantum pictures gate.yaml --out pictures", says: /pulses\.svg/ },
    { args: "quantum bench --seconds 0.01 --batch 4", says: /compiled once/ },
    { args: "quantum profile gate.yaml --devices 1 --repeats 1 --patterns states", says: /takes most of a call/ },
  ],
  bench: [{ args: "bench --devices 1 8 --simulate h200 --sizes 13000x4096x4096 --no-pictures", says: /predicted/ }],
  server: [{ args: "server --port nowhere", exit: [1, 2], says: /nowhere/ }],
  worker: [{ args: "worker --cores 0", exit: [1, 2], says: /cores/ }],
  preflight: [{ args: "preflight --devices 0", exit: [2], says: /whole number above 0/ }],
  top: [{ args: "top --once --server localhost:9", exit: [1], says: /localhost:9/, colored: /weft:/ }],
  init: [{ args: "init quantum NEW", says: /Type:/ }],
  ui: [{ args: "ui --port nowhere", exit: [1, 2], says: /nowhere/ }],
  doctor: [{ args: "doctor --no-measure", exit: [0, 1], says: /kernel cache/ }],
  schema: [{ args: "schema", says: /gate/ }],
  completion: [{ args: "completion bash", says: /_weft\(\)/ }],
};

async function prepare(): Promise<void> {
  const lab = join(repositoryRoot, "packages/lab/testdata");
  cpSync(join(lab, "ddp_experiments"), join(folder, "experiments"), { recursive: true });
  cpSync(join(lab, "hangs"), join(folder, "hangs"), { recursive: true });
  const trace = readFileSync(join(lab, "traces/nccl_parser_config_rank0.json.br"));
  writeFileSync(join(folder, "trace.json"), brotliDecompressSync(trace));
  writeFileSync(join(folder, "gate.yaml"), gate);
  writeFileSync(join(folder, "tiny.yaml"), tiny);
  writeFileSync(
    join(folder, "wrong.sh"),
    "#!/bin/bash\n#SBATCH --ntasks=4\n#SBATCH --nodes=1\n#SBATCH --gpus-per-task=1\nsrun torchrun --nproc_per_node=4 train.py\n",
  );
  mkdirSync(join(folder, "vtrain/data"), { recursive: true });
  writeFileSync(join(folder, "vtrain/data/ground_truth_single.csv"), "model,gpus,seconds\ngpt,8,1.5\n");
  setDevice("reference");
  const config = { vocab_size: 20, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 64, initializer_range: 0.5 };
  const model = defineModel({ model_type: "gpt2", ...config }, { task: "causal-lm" });
  await savePretrained(join(folder, "model"), model, model.init(key(0)));
  const vocab = Object.fromEntries(Array.from("abcdefghijklmnopqrst", (letter, id) => [letter, id]));
  const tokenizer = {
    version: "1.0",
    added_tokens: [],
    model: { type: "BPE", vocab, merges: [] },
    decoder: { type: "Fuse" },
  };
  writeFileSync(
    join(folder, "model/tokenizer.json"),
    JSON.stringify({ ...tokenizer, normalizer: null, pre_tokenizer: null, post_processor: null }),
  );
}

interface Done {
  status: number | null;
  text: string;
}

const env = {
  ...process.env,
  WEFT_LEDGER: join(folder, "ledger.jsonl"),
  WEFT_PROGRESS: "1",
  TERM: "xterm",
  NO_COLOR: "",
};

function piped(args: string): Done {
  const done = spawnSync("sh", ["-c", `"${process.execPath}" "${weft}" ${args}`], {
    cwd: folder,
    encoding: "utf8",
    timeout: 120_000,
    input: "",
    env,
  });
  return { status: done.status, text: done.stdout + done.stderr };
}

/** Runs a use on a pseudo-terminal, which util-linux's script makes. */
function onTerminal(args: string, more: Record<string, string> = {}): Done {
  const line = `stty cols ${columns}; "${process.execPath}" "${weft}" ${args}`;
  const done = spawnSync("script", ["-qec", line, "/dev/null"], {
    cwd: folder,
    encoding: "utf8",
    timeout: 120_000,
    input: "",
    env: { ...env, ...more },
  });
  return { status: done.status, text: done.stdout.replaceAll("\r\n", "\n") };
}

const hasScript = process.platform === "linux" && spawnSync("script", ["--version"]).status === 0;
const here = existsSync(join(repositoryRoot, "packages/lab/testdata"));

const escape = "\u001b";
const color = (text: string): string => `\u001b\\[3[123]m[^\u001b]*${text}`;
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape codes are what is looked for
const escapes = /\u001b\[[\d;?]*[A-Za-z]/g;

/** Lines that may be wide: tables, commands to type, addresses and paths, which must not be broken. */
const mayBeWide = (line: string): boolean => /\S {2,}\S|https?:|\/\S{30}|^\s|--\w|[-]{20}|^complete |'/.test(line);

before(() => (here ? prepare() : undefined));

test("every command has its smallest use here", () => {
  assert.deepEqual(Object.keys(uses).sort(), Object.keys(commands).sort());
});

test("every command on a terminal and in a pipe", { skip: here ? false : "needs the repository" }, async (t) => {
  for (const [name, list] of Object.entries(uses))
    for (const { args, exit = [0], says, colored } of list)
      await t.test(`weft ${args}`, () => {
        const pipe = piped(args.replace("NEW", "pipe"));
        assert.ok(exit.includes(pipe.status ?? -1), `${name} exits with ${pipe.status}\n${pipe.text}`);
        assert.match(pipe.text, says);
        assert.ok(!pipe.text.includes(escape), "a pipe sees no escape codes");
        assert.doesNotMatch(pipe.text, /\n\s+at .*:\d+:\d+/, "no stack trace");
        if (!hasScript) return;
        const terminal = onTerminal(args.replace("NEW", "terminal"));
        assert.ok(exit.includes(terminal.status ?? -1), `${name} exits with ${terminal.status}\n${terminal.text}`);
        if (colored !== undefined) assert.match(terminal.text, new RegExp(color(colored.source)));
        const lines = terminal.text.split(/[\r\n]/).map((line) => line.replaceAll(escapes, ""));
        const wide = lines.filter((line) => line.length > columns && !mayBeWide(line));
        assert.deepEqual(wide, [], "text fits the terminal");
      });
});

test("NO_COLOR leaves no color on a terminal, and files hold no escape codes", {
  skip: here && hasScript ? false : "needs script",
}, () => {
  const { text } = onTerminal("analyze experiments --no-pictures", { NO_COLOR: "1" });
  assert.match(text, /NOT VALID/);
  assert.equal(text.replaceAll(`${escape}[2K`, "").includes(escape), false);
  onTerminal("diagnose experiments --out findings");
  for (const name of readdirSync(join(folder, "findings")))
    assert.ok(!readFileSync(join(folder, "findings", name), "utf8").includes(escape), name);
});
