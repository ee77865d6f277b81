// Every code block of the README and of the pages: programs compile strictly and run, settings are valid, commands exist with
// their options. A program that cannot run here says why in its first line; their number is limited.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseRules } from "@weft/core/internal/shard";
import { parseControlFile, parseGateSpec, parseMetaFile } from "@weft/quantum";
import {
  allBlocks,
  needsCompiler,
  needsRepository,
  notRun,
  packageExamples,
  repositoryRoot as root,
  runPrograms,
} from "@weft/testing/examples";
import { loadAnyConfig } from "@weft/train/internal/config";
import { parse } from "yaml";
import { shellLines, weftCalls, wrongCall } from "./shell-lines.js";

/** Programs that only compile here. The number may only go down: lower it when it does. */
const notRunLimit = 2;

const here = existsSync(join(root, "docs"));
const pages = here
  ? [
      "README.md",
      "CONTRIBUTING.md",
      "CHANGELOG.md",
      ...readdirSync(join(root, "docs")).map((name) => `docs/${name}`),
      "examples/README.md",
      ...readdirSync(join(root, "examples")).map((name) => `examples/${name}/README.md`),
      ...readdirSync(join(root, "packages")).map((name) => `packages/${name}/README.md`),
    ].filter((page) => page.endsWith(".md") && existsSync(join(root, page)))
  : [];
const texts = new Map(pages.map((page) => [page, readFileSync(join(root, page), "utf8")]));
const blocks = [...texts].flatMap(([page, text]) => allBlocks(text).map((block) => ({ page, ...block })));
const of = (...languages: string[]) => blocks.filter(({ language }) => languages.includes(language));

/** A folder with the study that the lab's programs read. */
const scratch = mkdtempSync(join(tmpdir(), "weft-pages-"));
after(() => rmSync(scratch, { recursive: true, force: true }));
if (here)
  cpSync(join(root, "packages/lab/testdata/ddp_experiments"), join(scratch, "experiments"), { recursive: true });

/** What a page's program must print, beside what the comments of its console.log lines say. */
const expected: Record<string, (output: string) => void> = {
  "README.md": (output) => {
    const printed = /^loss ([\d.]+), accuracy ([\d.]+)$/m.exec(output);
    assert.ok(printed !== null && Number(printed[1]) < 0.12 && Number(printed[2]) > 0.95, output);
  },
  "docs/meta.md": (output) => {
    const infidelities = /^GRAPE (.*)$/m.exec(output)![1].split(" ").map(Number);
    assert.ok(
      infidelities.every((x) => x < 0.08),
      output,
    );
    assert.match(output, /^fidelity true$/m);
  },
  "docs/from-qutip.md": (output) => assert.match(output, /\d/),
  "docs/quantum.md": (output) => assert.match(output, /\d/),
};

const dense = (text: string): string => text.replaceAll(/[\s'"]/g, "");

test(
  "every TypeScript block and @example compiles strictly, runs and prints what its comments say",
  needsCompiler,
  () => {
    // The other packages run their examples in their own tests.
    const examples = ["packages/lab", "packages/train", "packages/ui"].flatMap(packageExamples);
    const programs = [...of("ts").map(({ page, line, code }) => ({ name: `${page}:${line}`, code })), ...examples].map(
      (program) => ({ ...program, cwd: scratch }),
    );
    assert.ok(programs.length >= 25, `${programs.length} programs`);
    const skipped = programs.filter(({ code }) => notRun.test(code));
    for (const { name, code } of skipped) console.log(`${name}: not run: ${notRun.exec(code)![1]}`);
    assert.ok(skipped.length <= notRunLimit, `${skipped.length} programs are not run, limit ${notRunLimit}`);
    runPrograms(programs, ({ name, code }, output) => {
      let rest = dense(output);
      for (const [, comment] of code.matchAll(/^console\.log\(.*\); \/\/ ([[{\d-].*|true|false)$/gm)) {
        const at = rest.indexOf(dense(comment));
        assert.ok(at >= 0, `${name}: expected ${comment} in ${output}`);
        rest = rest.slice(at + dense(comment).length);
      }
      expected[name.split(":")[0]]?.(output);
    });
  },
);

test("every block has a known language, and every JavaScript, JSON and Python block parses", needsRepository, () => {
  const known = ["ts", "js", "bash", "console", "yaml", "json", "python", "text"];
  const unknown = blocks.filter(({ language }) => !known.includes(language));
  assert.deepEqual(
    unknown.map(({ page, line, language }) => `${page}:${line} ${language}`),
    [],
  );
  for (const { page, line, code } of of("json"))
    for (const text of code.trim().startsWith("{") && code.trim().split("\n").length > 1
      ? code.trim().split("\n")
      : [code])
      assert.doesNotThrow(() => JSON.parse(text), `${page}:${line}`);
  const file = join(scratch, "block.mjs");
  for (const { page, line, code } of of("js")) {
    writeFileSync(file, code);
    const done = spawnSync(process.execPath, ["--check", file], { encoding: "utf8" });
    assert.equal(done.status, 0, `${page}:${line}: ${done.stderr}`);
  }
  const python = of("python");
  const source = "import ast, json, sys\nfor name, code in json.load(sys.stdin): ast.parse(code, name)";
  const input = JSON.stringify(python.map(({ page, line, code }) => [`${page}:${line}`, code]));
  const done = spawnSync("python3", ["-c", source], { input, encoding: "utf8" });
  if (done.error !== undefined) console.log("SKIPPED: there is no python3 to parse the Python blocks");
  else assert.equal(done.status, 0, done.stderr);
});

/** Kinds of YAML files by a key that only they have, and what reads them. */
const readers: [string, (text: string, name: string) => unknown][] = [
  ["scopes", (text) => parseRules(parse(text))],
  ["studies", (text) => assert.ok(Array.isArray((parse(text) as { studies: unknown[] }).studies))],
  ["objective", parseControlFile],
  ["device", parseGateSpec],
  ["integration", parseMetaFile],
  [
    "training",
    (text) => {
      const file = join(scratch, "config.yaml");
      writeFileSync(file, text);
      loadAnyConfig(file);
    },
  ],
];

test("every YAML block is valid", needsRepository, () => {
  assert.ok(of("yaml").length >= 6);
  for (const { page, line, code } of of("yaml")) {
    const value = parse(code) as Record<string, unknown>;
    const reader = readers.find(([key]) => key in value);
    assert.ok(reader !== undefined, `${page}:${line}: no reader for ${Object.keys(value).join(", ")}`);
    assert.doesNotThrow(() => reader[1](code, `${page}:${line}`), `${page}:${line}`);
  }
});

test("every documented command exists, with its options and arguments", needsRepository, async () => {
  const scripts = (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { scripts: object }).scripts;
  const wrong: string[] = [];
  let calls = 0;
  for (const { page, line, code, language } of of("bash", "console"))
    for (const text of shellLines(code, language === "console")) {
      for (const call of weftCalls(text)) {
        calls++;
        const problem = await wrongCall(call);
        if (problem !== null) wrong.push(`${page}:${line}: ${text}: ${problem}`);
      }
      for (const [, script] of text.matchAll(/\bnpm run ([\w:-]+)/g))
        if (!(script in scripts)) wrong.push(`${page}:${line}: there is no npm script ${script}`);
      for (const [file] of text.matchAll(/\b(?:configs|examples|deploy|scripts)\/[\w./-]+\.\w+/g))
        if (language === "bash" && !existsSync(join(root, file))) wrong.push(`${page}:${line}: there is no ${file}`);
    }
  // Commands in the text: options must exist, arguments may be missing.
  for (const [page, text] of texts) {
    // Pages about the past and about what is not there yet.
    if (["docs/decisions.md", "docs/status.md"].includes(page)) continue;
    const prose = text.replaceAll(/^( *)```[\s\S]*?^\1```$/gm, "");
    for (const [, span] of prose.matchAll(/(?<!`)`((?:npx )?weft [^`]+)`(?!`)/g))
      for (const call of weftCalls(span.replaceAll(/\s+/g, " "))) {
        calls++;
        const problem = await wrongCall(call, false);
        if (problem !== null) wrong.push(`${page}: ${span}: ${problem}`);
      }
  }
  assert.deepEqual(wrong, []);
  assert.ok(calls > 140, `${calls} calls`);
});
