// Checks of documentation: programs in Markdown and in `@example` blocks of TSDoc are compiled strictly and run, and public
// names without TSDoc are found. For the tests of every package.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "../device/index.js";

/** Root of the repository. */
export const repositoryRoot = fileURLToPath(new URL("../../../../", import.meta.url));
const compiler = join(repositoryRoot, "node_modules/typescript/bin/tsc");

/** Test option: skips tests that need the sources and the compiler where only the built package is there. */
export const needsRepository =
  existsSync(join(repositoryRoot, "README.md")) && existsSync(compiler) ? {} : { skip: "no repository here" };

/** The same for programs that run, some of them on the CPU device. */
export const needsCompiler = CpuDevice.available() ? needsRepository : { skip: "no C compiler" };

/** A program in the documentation. */
export interface DocumentedProgram {
  /** Where it is: file and line. */
  name: string;
  code: string;
  /** Folder to run it in; the root of the repository by default. */
  cwd?: string;
}

/** Code blocks of a language in Markdown. */
export const markdownBlocks = (text: string, language: string): string[] =>
  allBlocks(text).flatMap((block) => (block.language === language ? [block.code] : []));

/** A code block in Markdown. */
export interface CodeBlock {
  language: string;
  code: string;
  /** Line of its first fence, from 1. */
  line: number;
}

/** All code blocks of a Markdown text, indented ones too. */
export const allBlocks = (text: string): CodeBlock[] =>
  [...text.matchAll(/^( *)```(\w*)\n([\s\S]*?)^\1```$/gm)].map((match) => ({
    language: match[2],
    code: match[3],
    line: text.slice(0, match.index).split("\n").length,
  }));

/** The comment that begins a program which compiles in the tests but does not run there, with the reason. */
export const notRun = /^(?:\/\/|#) Not run by the tests: (.+)\.$/m;

/** The program of every `@example` of a TypeScript source. */
function tsdocExamples(source: string, file: string): DocumentedProgram[] {
  const examples: DocumentedProgram[] = [];
  for (const comment of source.matchAll(/\/\*\*[\s\S]*?\*\//g)) {
    const text = comment[0].replaceAll(/^[ \t]*\*[ ]?/gm, "");
    text
      .split(/^@example\b/m)
      .slice(1)
      .forEach((example) => {
        const line = source.slice(0, comment.index).split("\n").length;
        const blocks = markdownBlocks(example.split(/^@\w+/m)[0], "ts");
        assert.equal(blocks.length, 1, `${file}:${line}: an @example has one block of ts, this has ${blocks.length}`);
        examples.push({ name: `${file}:${line}`, code: blocks[0] });
      });
  }
  return examples;
}

/** The programs of all `@example` blocks in the sources of a package, such as "packages/quantum". */
export function packageExamples(folder: string): DocumentedProgram[] {
  const sources = join(repositoryRoot, folder, "src");
  return readdirSync(sources, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
    .sort()
    .flatMap((name) => tsdocExamples(readFileSync(join(sources, name), "utf8"), join(folder, "src", name)));
}

/** Runs the modules that its arguments name, one after the other, and prints a mark after the output of each. */
const driver = (mark: string): string => `for (const file of process.argv.slice(2)) {
  await import(file);
  process.stdout.write(${JSON.stringify(mark)});
}
`;

/**
 * Compiles programs strictly and hands each to `check` with what it printed. The programs lie inside the repository, so that
 * they find its packages. Those of one folder share a process: most of the time of a small program is the start of Node.
 */
export function runPrograms(
  programs: readonly DocumentedProgram[],
  check: (program: DocumentedProgram, output: string) => void = () => {},
): void {
  mkdirSync(join(repositoryRoot, "runs"), { recursive: true });
  const folder = mkdtempSync(join(repositoryRoot, "runs/examples-"));
  const run = (args: string[], cwd = repositoryRoot) =>
    spawnSync(process.execPath, args, {
      cwd,
      encoding: "utf8",
      timeout: 300_000,
      // As a user runs them: small programs are interpreted.
      env: { ...process.env, WEFT_THREADS: "1", WEFT_INTERPRET: undefined },
    });
  try {
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }\n');
    const files = programs.map(({ code }, i) => {
      writeFileSync(join(folder, `example${i}.ts`), code);
      return `example${i}.ts`;
    });
    const compilerOptions = { rootDir: ".", noEmit: false, composite: false, declaration: false };
    const config = { extends: join(repositoryRoot, "tsconfig.base.json"), compilerOptions, files };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
    const built = run([compiler, "-p", folder]);
    const names = programs.map(({ name }, i) => `example${i}.ts: ${name}`).join("\n");
    assert.equal(built.status, 0, `${built.stdout}\n${names}`);
    const mark = `\n== end of ${basename(folder)} ==\n`;
    writeFileSync(join(folder, "driver.js"), driver(mark));
    const running = programs.flatMap((program, i) =>
      notRun.test(program.code) ? [] : [{ program, file: `./example${i}.js` }],
    );
    for (const cwd of new Set(running.map(({ program }) => program.cwd))) {
      const ofFolder = running.filter(({ program }) => program.cwd === cwd);
      const done = run([join(folder, "driver.js"), ...ofFolder.map(({ file }) => file)], cwd);
      const outputs = done.stdout.split(mark);
      const reached = ofFolder[outputs.length - 1]?.program.name ?? "the end";
      assert.equal(done.status, 0, `${reached}: ${done.stderr}`);
      assert.equal(outputs.length, ofFolder.length + 1, `${reached} ended the process`);
      ofFolder.forEach(({ program }, i) => {
        check(program, outputs[i]);
      });
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const declaration = (name: string): RegExp =>
  new RegExp(
    `^export (?:declare )?(?:async )?(?:abstract )?(?:function\\*?|const|let|class|interface|type|enum) ${name}(?![\\w$])`,
    "m",
  );

/** Exported names of an entry file whose declaration has no TSDoc, as "file: name". */
export function undocumentedExports(entry: string): string[] {
  const undocumented: string[] = [];
  const visit = (file: string, wanted: ReadonlySet<string> | null): void => {
    const source = readFileSync(file, "utf8");
    for (const match of source.matchAll(/^export (?:\*|(?:type )?\{([^}]*)\}) from "(\.[^"]+)";/gm)) {
      const target = resolve(dirname(file), match[2].replace(/\.js$/, ".ts"));
      const names = match[1]?.split(",").map(
        (part) =>
          part
            .replace(/^\s*type /, "")
            .trim()
            .split(" as ")[0],
      );
      const listed = names?.filter((name) => name !== "" && (wanted === null || wanted.has(name)));
      if (listed === undefined) visit(target, wanted);
      else if (listed.length > 0) visit(target, new Set(listed));
    }
    const own = [...source.matchAll(/^export [\w ]*?(?:function\*?|const|let|class|interface|type|enum) ([\w$]+)/gm)];
    for (const [, name] of own) {
      if (wanted !== null && !wanted.has(name)) continue;
      const before = source.slice(0, source.search(declaration(name))).trimEnd();
      // Overloads: the first declaration carries the documentation.
      if (!before.endsWith("*/")) undocumented.push(`${relative(repositoryRoot, file)}: ${name}`);
    }
  };
  visit(join(repositoryRoot, entry), null);
  return [...new Set(undocumented)];
}
