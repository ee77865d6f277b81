// Keeps CONTRIBUTING.md and the glossary true: each named file exists, each file of the tables mentions
// the example function or op, and no rule file that mentions it is missing from the tables.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { binaryFns, isOpName, reduceFns, unaryFns } from "../graph/index.js";
import { needsRepository, repositoryRoot } from "../testing/examples.js";

const sources = join(repositoryRoot, "packages/core/src");
const read = (path: string): string => readFileSync(join(repositoryRoot, path), "utf8");

/** Absolute path of a file as the page names it. */
const resolvePath = (path: string): string => join(/^(packages|docs)\//.test(path) ? repositoryRoot : sources, path);

const mentions = (text: string, name: string): boolean => new RegExp(`(?<![A-Za-z])${name}(?![A-Za-z])`).test(text);
const quoted = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]);

/** The files in the first column of the tables of a section, each with the name that the file must mention. */
function tableFiles(section: string, example: string): { file: string; name: string }[] {
  const rows = section.split("\n").filter((line) => line.startsWith("| `"));
  return rows.flatMap((row) => {
    const [files, , own] = row.slice(1, -1).split("|");
    return quoted(files).map((file) => ({ file, name: own === undefined ? example : quoted(own)[0] }));
  });
}

/** Files of the layers with rule tables, tests excluded. */
const ruleFiles = (): string[] =>
  ["graph", "ops", "transform", "cost", "compile", "device"].flatMap((layer) =>
    readdirSync(join(sources, layer), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts") && !/\.test\.ts$|testkit\.ts$/.test(name))
      .map((name) => `${layer}/${name}`),
  );

for (const [title, example] of [
  ["Adding a unary or binary function", "erfc"],
  ["Adding an op", "cumsum"],
] as const)
  test(`"${title}" names every rule file, and each mentions its example`, needsRepository, () => {
    const section = read("CONTRIBUTING.md")
      .split(/^## /m)
      .find((text) => text.startsWith(title));
    assert.ok(section !== undefined, `CONTRIBUTING.md has no section "${title}"`);
    const listed = tableFiles(section, example);
    assert.ok(listed.length > 10, `only ${listed.length} files in the tables`);
    for (const { file, name } of listed) {
      assert.ok(
        isOpName(name) || [...unaryFns, ...binaryFns, ...reduceFns].some((fn) => fn === name),
        `${name} is neither an op nor a function`,
      );
      assert.ok(existsSync(resolvePath(file)), `${file} does not exist`);
      assert.ok(mentions(readFileSync(resolvePath(file), "utf8"), name), `${file} does not mention ${name}`);
    }
    const missing = ruleFiles().filter(
      (file) =>
        mentions(readFileSync(join(sources, file), "utf8"), example) && !listed.some((entry) => entry.file === file),
    );
    assert.deepEqual(missing, [], `files that mention ${example} and are not in the tables`);
  });

test("paths in CONTRIBUTING.md exist", needsRepository, () => {
  const paths = quoted(read("CONTRIBUTING.md")).filter(
    (text) => /^[\w./-]+\/[\w.-]*$/.test(text) && !text.startsWith("."),
  );
  assert.ok(paths.length > 40);
  const missing = paths.filter((path) => !existsSync(resolvePath(path)) && !existsSync(join(repositoryRoot, path)));
  assert.deepEqual(missing, []);
});

test("the glossary defines each term once", needsRepository, () => {
  const terms = [...read("docs/glossary.md").matchAll(/^\| ([^|]+?) \|/gm)].map((match) => match[1].toLowerCase());
  assert.ok(terms.length > 40);
  assert.deepEqual(
    terms.filter((term, i) => terms.indexOf(term) !== i),
    [],
  );
});
