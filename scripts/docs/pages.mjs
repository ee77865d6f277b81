// Markdown pages of the site: copies of the README, CONTRIBUTING.md, CHANGELOG.md, docs/*.md and the examples with front matter, in which
// every link leads to a page or a package of the site. Links to other files of the repository become plain text.
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, sep } from "node:path";
import { globSync } from "../glob.mjs";
import { root } from "../setup.mjs";
import { entries, groups } from "./entries.mjs";
import { mapLinks } from "./markdown.mjs";

/** Where a link to a file or folder of the repository leads on the site: a path relative to the root, or null. */
function siteTarget(path) {
  if (/^(README|CONTRIBUTING|CHANGELOG)\.md$|^docs\/[^/]+\.md$/.test(path)) return path;
  if (/^docs\/images\/|^examples\/[^/]+\/(README\.md|[^/]+\.(svg|png))$/.test(path)) return path;
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

const language = { ".mjs": "js", ".yaml": "yaml", ".py": "python" };

const read = (path) => readFileSync(join(root, path), "utf8");

/** Files with their source, as sections of a page. */
const sources = (files) =>
  files.sort().map((file) => {
    const kind = language[/\.\w+$/.exec(file)[0]];
    return `## ${relative(root, file)}\n\n\`\`\`${kind}\n${readFileSync(file, "utf8").trimEnd()}\n\`\`\`\n`;
  });

/** Folders of examples that have a page. */
const exampleNames = readdirSync(join(root, "examples")).filter((name) =>
  existsSync(join(root, "examples", name, "README.md")),
);

/** The list of the examples, with the source of those that have no page. */
function examplesPage() {
  const own = exampleNames.map((name) => join(root, "examples", name) + sep);
  const isOther = (path) => /\.(mjs|yaml)$/.test(path) && !own.some((folder) => path.startsWith(folder));
  const list = read("examples/README.md").replaceAll(/\]\(([\w-]+)\/README\.md\)/g, "](../examples/$1/README.md)");
  return [list, ...sources(globSync(join(root, "examples"), isOther))].join("\n");
}

/** Pages that are not files of `docs/`: where they are, and their text. */
const elsewhere = {
  contributing: ["CONTRIBUTING.md", () => read("CONTRIBUTING.md")],
  changelog: ["CHANGELOG.md", () => read("CHANGELOG.md")],
  examples: ["docs/examples.md", examplesPage],
};
for (const name of exampleNames) {
  const folder = join(root, "examples", name);
  const program = () => sources(globSync(folder, (path) => /\.(mjs|yaml|py)$/.test(path))).join("\n");
  elsewhere[`example ${name}`] = [
    `examples/${name}/README.md`,
    () => `${read(`examples/${name}/README.md`)}\n${program()}`,
  ];
}

/** Writes the copies into a folder; returns the front page and the other pages in the order of the navigation. */
export function writePages(folder) {
  mkdirSync(join(folder, "docs"), { recursive: true });
  cpSync(join(root, "docs/images"), join(folder, "docs/images"), { recursive: true });
  for (const name of exampleNames)
    cpSync(join(root, "examples", name), join(folder, "examples", name), { recursive: true });
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
  const examples = exampleNames.map((name) => ({
    name: `example ${name}`,
    group: "Examples",
    title: /^# (.+)$/m.exec(read(`examples/${name}/README.md`))[1],
  }));
  const front = join(folder, "README.md");
  writeFileSync(front, siteText(readFileSync(join(root, "README.md"), "utf8"), "README.md", folder));
  return {
    front,
    pages: [...listed, ...examples, ...others].map(({ name, group, title }) => write(name, group, title)),
  };
}
