// Links in Markdown. Run as a program, it checks README.md, CONTRIBUTING.md, CHANGELOG.md, docs/, examples/ and the READMEs of the packages: every
// relative link leads to a file or folder of the repository, every anchor to a heading.
import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { globSync } from "../glob.mjs";
import { root } from "../setup.mjs";

/** Code: fenced blocks and code spans, in which nothing is a link. */
const code = /^(`{3,}|~{3,})[^\n]*\n[\s\S]*?^\1[^\n]*$|(?<!`)(`+)(?!`)[^\n]*?(?<!`)\2(?!`)/gm;

/** Hides code behind characters that occur in no page, applies a function, and restores the code. */
function outsideCode(text, change) {
  const hidden = [];
  const masked = text.replaceAll(code, (block) => `\u{e000}${hidden.push(block) - 1}\u{e001}`);
  return change(masked).replaceAll(/\u{e000}(\d+)\u{e001}/gu, (_, i) => hidden[i]);
}

const inlineLink = /(!?)\[((?:[^[\]\n]|\n(?!\n))*)\]\(([^()\s]+)( "[^"\n]*")?\)/g;

/** Replaces the target of every link outside code. A target of null leaves the text of the link without a link. */
export const mapLinks = (text, change) =>
  outsideCode(text, (masked) =>
    masked.replaceAll(inlineLink, (_, image, label, target, title = "") => {
      const to = change(target);
      return to === null ? label : `${image}[${label}](${to}${title})`;
    }),
  );

/** Anchors of the headings of a page, as GitHub makes them. */
function anchorsOf(text) {
  const anchors = new Set();
  for (const [, heading] of text
    .replaceAll(/^(`{3,}|~{3,})[^\n]*\n[\s\S]*?^\1[^\n]*$/gm, "")
    .matchAll(/^#{1,6} +(.+)$/gm)) {
    const plain = heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .trim();
    const slug = plain.replaceAll(/[^\p{L}\p{N}\p{M}_ -]/gu, "").replaceAll(" ", "-");
    let anchor = slug;
    for (let i = 1; anchors.has(anchor); i++) anchor = `${slug}-${i}`;
    anchors.add(anchor);
  }
  return anchors;
}

/** Broken links of a page, as "page: target: reason". */
export function brokenLinks(page) {
  const broken = [];
  mapLinks(readFileSync(page, "utf8"), (target) => {
    if (/^[a-z]+:/.test(target)) return target;
    const [path, anchor] = target.split("#");
    const file = path === "" ? page : join(dirname(page), decodeURIComponent(path));
    const report = (reason) => broken.push(`${relative(root, page)}: ${target}: ${reason}`);
    if (!existsSync(file)) report("no such file");
    else if (anchor !== undefined && statSync(file).isFile() && !anchorsOf(readFileSync(file, "utf8")).has(anchor))
      report("no such heading");
    return target;
  });
  return broken;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const isPage = (path) => path.endsWith(".md") && !/\/(dist|testdata)\//.test(path);
  const pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map((name) => join(root, name));
  for (const folder of ["docs", "bench", "examples", "packages"]) pages.push(...globSync(join(root, folder), isPage));
  const broken = pages.flatMap(brokenLinks);
  if (broken.length > 0) {
    console.error(broken.join("\n"));
    process.exit(1);
  }
  console.log(`${pages.length} pages have no broken link`);
}
