// Markdown pages of the site: copies of the README, CONTRIBUTING.md, docs/*.md and the examples with front matter, in which
// every link leads to a page or a package of the site. Links to other files of the repository become plain text.
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { globSync } from "../glob.mjs";
import { root } from "../setup.mjs";
import { entries, groups } from "./entries.mjs";
import { mapLinks } from "./markdown.mjs";

/** Where a link to a file or folder of the repository leads on the site: a path relative to the root, or null. */
function siteTarget(path) {
  if (path === "README.md" || path === "CONTRIBUTING.md" || /^docs\/[^/]+\.md$/.test(path)) return path;
  if (/^docs\/images\//.test(path)) return path;
  if (path === "examples" || path.startsWith("examples/")) return "docs/examples.md";
  return entries.find(({ source }) => source.startsWith(`${path}/src/`) || source === path)?.source ?? null;
}

/** The text of a page with its links changed: `page` is its path in the repository, `folder` holds the copies. */
export function siteText(text, page, folder) {
  return mapLinks(text, (target) => {
    if (/^[a-z]+:/.test(target) || target.startsWith("#")) return target;
    const [path, anchor] = target.split("#");
    const to = siteTarget(relative(root, join(root, dirname(page), path)));
    if (to === null) return null;
    const file = to.startsWith("packages/") ? join(root, to) : join(folder, to);
    return relative(join(folder, dirname(page)), file) + (anchor === undefined ? "" : `#${anchor}`);
  });
}

const language = { ".mjs": "js", ".yaml": "yaml" };

/** One page with the source of every example. */
function examplesPage() {
  const files = globSync(join(root, "examples"), (path) => /\.(mjs|yaml)$/.test(path)).sort();
  const parts = files.map((file) => {
    const code = readFileSync(file, "utf8").trimEnd();
    return `## ${relative(root, file)}\n\n\`\`\`${language[/\.\w+$/.exec(file)[0]]}\n${code}\n\`\`\`\n`;
  });
  return `# Examples\n\nComplete programs and specifications of the folder \`examples/\`.\n\n${parts.join("\n")}`;
}

/** Pages that are not files of `docs/`: where they are, and their text. */
const elsewhere = {
  contributing: ["CONTRIBUTING.md", () => readFileSync(join(root, "CONTRIBUTING.md"), "utf8")],
  examples: ["docs/examples.md", examplesPage],
};

/** Writes the copies into a folder; returns the front page and the other pages in the order of the navigation. */
export function writePages(folder) {
  mkdirSync(join(folder, "docs"), { recursive: true });
  cpSync(join(root, "docs/images"), join(folder, "docs/images"), { recursive: true });
  const write = (name, group, title) => {
    const own = [`docs/${name}.md`, () => readFileSync(join(root, `docs/${name}.md`), "utf8")];
    const [page, text] = elsewhere[name] ?? own;
    const matter = `---\ntitle: ${JSON.stringify(title)}\ngroup: ${group}\n---\n\n`;
    writeFileSync(join(folder, page), matter + siteText(text(), page, folder));
    return join(folder, page);
  };
  const listed = Object.entries(groups).flatMap(([group, titles]) =>
    Object.entries(titles).map(([name, title]) => ({ name, group, title })),
  );
  const others = readdirSync(join(root, "docs"))
    .filter((file) => file.endsWith(".md") && !listed.some(({ name }) => `${name}.md` === file))
    .map((file) => ({ name: basename(file, ".md"), group: "More", title: basename(file, ".md") }));
  const front = join(folder, "README.md");
  writeFileSync(front, siteText(readFileSync(join(root, "README.md"), "utf8"), "README.md", folder));
  return { front, pages: [...listed, ...others].map(({ name, group, title }) => write(name, group, title)) };
}
