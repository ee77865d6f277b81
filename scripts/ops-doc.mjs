// Writes docs/ops.md: every public function with its signature, dtypes, devices, gradient and vmap. Signatures and
// sentences come from the compiled declarations, the rest from the cases that the test suites run: what no case covers is
// not claimed. `--check` compares instead of writing, and fails when the page is out of date.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { writeOrCheck } from "./generated.mjs";
import { root } from "./setup.mjs";

const dist = join(root, "packages/core/dist");
const read = (path) => readFileSync(join(dist, path), "utf8");
const weft = await import(join(dist, "index.js"));
const nn = await import(join(dist, "nn/index.js"));
const optim = await import(join(dist, "optim/index.js"));
const { cases } = await import(join(dist, "test/cases/index.js"));
const { knownDevices } = await import(join(dist, "test/devices.js"));

/** Declarations (`export declare function f(...)` and constants) of a file: name -> { kind, body, sentence }. */
function declarations(path) {
  const found = new Map();
  const pattern = /(\/\*\*(?:(?!\*\/)[\s\S])*\*\/\s*)?export declare (function|const) (\w+)/g;
  const text = read(path);
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    const [whole, comment = "", kind, name] = match;
    const start = match.index + whole.length;
    const body = text
      .slice(start, endOf(text, start, ";"))
      .replace(/import\("[^"]*"\)\./g, "")
      .replace(/\{ ?[\w, .]+ ?\}(\?)?: /g, "options$1: ")
      .replace(/\s+/g, " ")
      .trim();
    if (!found.has(name)) found.set(name, { kind, body, sentence: sentenceOf(comment) });
  }
  return found;
}

const sentenceOf = (comment) =>
  comment
    .replace(/^\s*\/?\*+\/?|\*\/\s*$/gm, "")
    .replace(/@(example|param|returns)[\s\S]*/, "")
    .replace(/\{@link ([^}]*)\}/g, "`$1`")
    .replace(/\s+/g, " ")
    .trim();

/** Where a character stands that is inside no bracket. */
function endOf(text, from, wanted) {
  let depth = 0;
  for (let i = from; i < text.length; i++) {
    if (depth === 0 && text[i] === wanted) return i;
    if ("{([".includes(text[i])) depth++;
    else if ("})]".includes(text[i])) depth--;
  }
  return text.length;
}

const elsewhere = new Map(["graph/dtype.d.ts", "runtime/debug.d.ts"].flatMap((path) => [...declarations(path)]));

/** Lines `name(parameters): result` of a declaration: one of a function, one a member of an object of functions. */
function signatures(name, declared) {
  const { kind, body } = declared.get(name);
  if (kind === "function") return [{ text: `${name}${body}`, sentence: "" }];
  const type = body.replace(/^: /, "");
  const alias = /^typeof (\w+)$/.exec(type)?.[1];
  if (alias !== undefined) {
    const source = declared.has(alias) ? declared : elsewhere;
    if (!source.has(alias)) return [{ text: `${name}(...)`, sentence: "" }];
    return signatures(alias, source).map(({ text }) => ({ text: text.replace(alias, name), sentence: "" }));
  }
  if (type.startsWith("{")) {
    const members = [...type.matchAll(/(\/\*\*.*?\*\/ )?(\w+)\(/g)].filter(([, , member]) =>
      /^(init|apply)$/.test(member),
    );
    return members.map((match) => {
      const start = match.index + (match[1]?.length ?? 0);
      return { text: `${name}.${type.slice(start, endOf(type, start, ";"))}`, sentence: sentenceOf(match[1] ?? "") };
    });
  }
  // An arrow's type: the first arrow outside of brackets becomes the colon of a signature.
  const arrow = endOf(type, 0, "=");
  return [{ text: `${name}${type.slice(0, arrow).trimEnd()}: ${type.slice(arrow + 2).trimStart()}`, sentence: "" }];
}

const groupOrder = weft.dtypes;
const families = [
  ["all", groupOrder],
  ["all but bool", groupOrder.slice(1)],
  ["real", groupOrder.filter((d) => d !== "bool" && !d.startsWith("complex"))],
  ["integers", groupOrder.filter((d) => d.includes("int"))],
  ["floats", groupOrder.filter((d) => d.includes("float"))],
  ["complex", groupOrder.filter((d) => d.startsWith("complex"))],
  ["float32, float64", ["float32", "float64"]],
];

/** A set of dtypes in words: the largest families that it contains, then single ones. */
function describeDTypes(names) {
  const left = new Set(names);
  const words = [];
  for (const [word, members] of families) {
    if (!members.every((d) => left.has(d))) continue;
    words.push(word);
    for (const d of members) left.delete(d);
  }
  return [...words, ...groupOrder.filter((d) => left.has(d))].join(", ");
}

const functionOf = (name) => name.slice(0, name.indexOf(":"));
const casesOf = (name) => cases.filter((item) => functionOf(item.name) === name);
const wide = ["float64", "complex128"];

function gradientOf(list) {
  const differentiated = list.filter((item) => item.grad !== false && item.dtypes.some((d) => wide.includes(d)));
  if (differentiated.length === 0) return "none";
  const second = differentiated.some((item) => item.grad2 !== false);
  const complex = differentiated.some((item) => item.dtypes.includes("complex128"));
  return `${second ? "1st, 2nd" : "1st"}${complex ? ", complex too" : ""}`;
}

const cell = (text) => text.replaceAll("|", "\\|");
const row = (cells) => `| ${cells.map(cell).join(" | ")} |`;

function coveredTable(names, declared, prefix = "") {
  return [
    row(["function", "dtypes", "gradient", "vmap", ""]),
    row(["---", "---", "---", "---", "---"]),
    ...names.map((name) => {
      const list = casesOf(`${prefix}${name}`);
      const [{ text }] = signatures(name, declared);
      const dtypes = [...new Set(list.flatMap((item) => item.dtypes))];
      const mapped = list.some((item) => item.vmap !== false) ? "yes" : "no";
      const { sentence } = declared.get(name);
      return row([`\`${prefix}${text}\``, describeDTypes(dtypes), gradientOf(list), mapped, sentence]);
    }),
  ];
}

const plainList = (names, declared, prefix = "") =>
  names.flatMap((name) =>
    signatures(name, declared).map(({ text, sentence }, i) => {
      const said = [i === 0 ? declared.get(name).sentence : "", sentence].filter((part) => part !== "").join(" ");
      return `- \`${prefix}${text}\`${said === "" ? "" : `: ${said}`}`;
    }),
  );

const sections = [
  ["Making tensors", ["create", "grids", "random", "distributions"]],
  ["Element by element", ["math", "elementwise", "elementary", "integers", "special"]],
  ["Reductions and statistics", ["reduce", "cumulative", "statistics", "samples"]],
  ["Shape", ["shape", "padding", "windows", "einops"]],
  ["Indexing and sorting", ["indexing", "selection", "scatter"]],
  ["Products", ["einsum", "conv"]],
  [
    "Neural networks: activations, normalization, losses",
    [
      "nnfunctions",
      "activations",
      "class-losses",
      "losses",
      "attention",
      "pool",
      "bags",
      "normalize",
      "resize",
      "patches",
    ],
  ],
  ["Linear algebra", ["linalg", "matrix-functions"]],
  ["Properties of dtypes", ["dtypes"]],
  ["Fourier transforms", ["fft"]],
  [
    "Transforms and trees",
    [
      "transforms",
      "jacobian",
      "mapping",
      "control",
      "dynamic",
      "custom",
      "jit",
      "tree",
      "scope",
      "precision",
      "annotate",
    ],
  ],
];
/** Public names that users rarely call; they come from the runtime. */
const runtimeNames = ["session", "useDevice"];
const isPublic = (name) => typeof weft[name] === "function";

const page = [];
const documented = new Set();
const uncovered = [];
for (const [title, files] of sections) {
  const declared = new Map(files.flatMap((file) => [...declarations(`tensor/${file}.d.ts`)]));
  const names = [...declared.keys()].filter(isPublic).sort();
  for (const name of names) documented.add(name);
  const covered = names.filter((name) => casesOf(name).length > 0);
  const others = names.filter((name) => casesOf(name).length === 0);
  page.push(`## ${title}`, "");
  if (covered.length > 0) page.push(...coveredTable(covered, declared), "");
  if (others.length > 0) page.push(...plainList(others, declared), "");
  if (title !== "Transforms and trees") uncovered.push(...others);
}

/** Functions of a namespace; those that are exported at the top too are only named. */
for (const [title, space, files] of [
  ["Special functions", "special", ["special-functions", "incomplete"]],
  ["Signals", "signal", ["signal"]],
  ["Polynomials", "poly", ["polynomials"]],
]) {
  const declared = new Map(files.flatMap((file) => [...declarations(`tensor/${file}.d.ts`)]));
  const names = Object.keys(weft[space]).sort();
  const repeated = names.filter((name) => !declared.has(name));
  page.push(`## ${title}: \`${space}\``, "");
  if (repeated.length > 0)
    page.push(`Also in this namespace: ${repeated.map((name) => `\`${name}\``).join(", ")}.`, "");
  page.push(
    ...coveredTable(
      names.filter((name) => declared.has(name)),
      declared,
      `${space}.`,
    ),
    "",
  );
}

/** Functions of the other entry points. */
function packageSection(title, module, folder, files) {
  const declared = new Map(files.flatMap((file) => [...declarations(`${folder}/${file}.d.ts`)]));
  const names = Object.keys(module)
    .filter((name) => declared.has(name))
    .sort();
  page.push(`## ${title}`, "", ...plainList(names, declared), "");
}
const filesOf = (folder) => [...read(`${folder}/index.d.ts`).matchAll(/from "\.\/([\w-]+)\.js"/g)].map((m) => m[1]);
packageSection("@weft/core/nn", nn, "nn", filesOf("nn"));
packageSection("@weft/core/optim", optim, "optim", filesOf("optim"));

const own = new Map([...declarations("index.d.ts"), ...declarations("device/registry.d.ts")]);
const rest = Object.keys(weft)
  .filter((name) => own.has(name) && !documented.has(name))
  .sort();
page.push("## Devices, memory, debugging", "", ...plainList(rest, own), "");
for (const [space, path] of [
  ["debug", "tensor/debug.d.ts"],
  ["system", "system.d.ts"],
]) {
  const declared = declarations(path);
  const members = Object.keys(weft[space]).filter((name) => declared.has(name));
  page.push(...plainList(members.sort(), declared, `${space}.`), "");
}

const classes = Object.keys(weft).filter((name) => /^[A-Z]/.test(name));
const described = new Set([...documented, ...rest, ...classes]);
const forgotten = Object.keys(weft).filter(
  (name) => isPublic(name) && !described.has(name) && !runtimeNames.includes(name),
);
if (forgotten.length > 0)
  throw new Error(`public functions that no section lists: ${forgotten.join(", ")}; add their file to \`sections\``);

// Names that users of NumPy or PyTorch expect; existing ones are removed from the list.
const expected =
  "cumprod median percentile quantile uniqueValues nonzero searchsorted histogram bincount meshgrid diff cross lu pinv lstsq " +
  "matrixRank eig eigvals fft ifft rfft conv3d convTranspose2d maxPool2d avgPool2d interpolate batchNorm groupNorm " +
  "elu selu mish hardtanh nllLoss ctcLoss cosineSimilarity gammaln digamma erfinv erfc i0 asinh acosh atanh hypot " +
  "logaddexp nanToNum isInf leftShift rightShift bitwiseNot scatter mask repeat bitcast histogram2d tensorsolve binomial " +
  "cummax cummin logcumsumexp partition argpartition lerp gcd lcm frexp ldexp bitwiseCount unravelIndex cdist pixelShuffle fold " +
  "gridSample associativeScan reduceWindow packBits unpackBits embeddingBag maxUnpool2d alphaDropout binaryCrossEntropy rmsNorm normalize " +
  "multiMarginLoss multiLabelMarginLoss lpPool2d fractionalMaxPool2d localResponseNorm affineGrid gumbelSoftmax conditionNumber uniqueRows " +
  "histogramdd rnn decoderLayer adafactor lbfgs";
const missing = expected.split(" ").filter((name) => !(name in weft || name in nn || name in optim));
const noGradient = [...documented]
  .filter((name) => casesOf(name).length > 0 && gradientOf(casesOf(name)) === "none")
  .sort();

const head = [
  "# Functions",
  "",
  "Generated by `node scripts/ops-doc.mjs` from the compiled declarations and from the cases that the test suites run;",
  "`npm test` fails when this page is out of date.",
  "",
  `- **devices**: ${knownDevices.map((name) => `\`${name}\``).join(", ")}. All functions in the tables support all of them. The tests run`,
  "  every case on each device of the machine and compare it with the reference.",
  "- **dtypes**: those that the tests cover. Functions that need floating point convert integers to float32.",
  "  JavaScript numbers take the dtype of the tensor.",
  "- **gradient**: orders that the tests compare with finite differences, in float64 (and complex128: *complex too*). *none*:",
  "  the result is not differentiable, or is an integer or a boolean.",
  "- **vmap**: compared with a loop.",
  "",
];
const tail = [
  "## Missing functions",
  "",
  `- In NumPy or PyTorch, but not in Weft: ${missing.join(", ")}.`,
  ...(uncovered.length > 0 ? [`- Without a test case of their own: ${uncovered.sort().join(", ")}.`] : []),
  `- Without a gradient: ${noGradient.join(", ")}.`,
  "- `index` with a boolean mask reads the mask: use `where` or `setMask` inside `jit`.",
  "",
];

writeOrCheck("docs/ops.md", [...head, ...page, ...tail]);
