// Generates the site with TypeDoc: API reference of the public entries, and the Markdown pages. build.mjs runs it after it
// installed TypeDoc. Usage: node generate.mjs <output folder> <folder for intermediate files>
import { writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { Application, Comment, CommentTag, Converter, MinimalSourceFile, ReflectionKind } from "typedoc";
import { root } from "../setup.mjs";
import { apiGroup, entries, groups } from "./entries.mjs";
import { siteText, writePages } from "./pages.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const [output, work] = process.argv.slice(2);
const { front, pages } = writePages(work);

/** TypeDoc leaves code spans out of the anchors of headings; GitHub does not. As children, their text is included. */
function keepCodeInHeadings(parser) {
  parser.core.ruler.push("weft_heading_code", ({ tokens, Token }) => {
    for (const [i, token] of tokens.entries())
      if (token.type === "heading_open")
        for (const child of tokens[i + 1].children ?? [])
          if (child.type === "code_inline") {
            const text = new Token("text", "", 0);
            text.content = child.content;
            child.children = [text];
          }
  });
}

const app = await Application.bootstrap({
  name: "Weft",
  out: output,
  tsconfig: join(here, "tsconfig.json"),
  basePath: root,
  displayBasePath: root,
  entryPoints: entries.map(({ source }) => join(root, source)),
  sortEntryPoints: false,
  alwaysCreateEntryPointModule: true,
  readme: front,
  projectDocuments: pages,
  customCss: join(here, "style.css"),
  favicon: join(here, "favicon.svg"),
  headings: { readme: false, document: false },
  groupOrder: ["Begin", "Examples", ...Object.keys(groups), "More", apiGroup, "Classes", "Functions", "*"],
  navigation: { includeGroups: true, includeCategories: false, excludeReferences: true },
  highlightLanguages: [
    "typescript",
    "javascript",
    "bash",
    "console",
    "json",
    "jsonc",
    "yaml",
    "python",
    "c",
    "cpp",
    "sql",
    "diff",
  ],
  searchInDocuments: true,
  searchGroupBoosts: { Functions: 2 },
  includeHierarchySummary: false,
  useFirstParagraphOfCommentAsSummary: true,
  markdownItLoader: keepCodeInHeadings,
  excludeExternals: true,
  excludeInternal: true,
  excludePrivate: true,
  hideGenerator: true,
  githubPages: false,
  // The names of layers that public types mention are not public: their pages would document internals.
  validation: { notExported: false, invalidLink: true, invalidPath: true, notDocumented: false, rewrittenLink: false },
});

// A module is called as users import it, and has an introduction with links to its guides.
app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
  for (const module of project.children ?? []) {
    const file = project.files.getReflectionPath(module);
    const entry = entries.find(({ source }) => file !== undefined && relative(root, file) === source);
    if (entry === undefined) continue;
    module.name = entry.name;
    const text = siteText(entry.text, "module.md", work);
    const page = new MinimalSourceFile(text, join(work, "module.md"));
    module.comment ??= new Comment();
    module.comment.blockTags.push(new CommentTag("@group", [{ kind: "text", text: apiGroup }]));
    module.readme = app.converter.parseRawComment(page, project.files).content;
  }
});

const project = await app.convert();
if (project === undefined) process.exit(1);

// `{@link add}` on the method `add` finds the method itself; the function of that name is meant.
for (const reflection of Object.values(project.reflections)) {
  const owner = reflection.kindOf(ReflectionKind.SomeSignature) ? reflection.parent : reflection;
  const module = owner?.parent?.parent;
  for (const part of reflection.comment?.summary ?? []) {
    if (part.kind !== "inline-tag" || (part.target !== owner && part.target !== reflection)) continue;
    const named = module?.children?.find(({ name }) => name === owner.name);
    if (named !== undefined) part.target = named;
  }
}

/** Exported names and their members without TSDoc, as "module.name". */
function undocumented() {
  const kinds = ReflectionKind.SomeModule | ReflectionKind.Reference | ReflectionKind.TypeLiteral;
  const names = new Set();
  for (const reflection of Object.values(project.reflections)) {
    if (!reflection.isDeclaration() || reflection.kindOf(kinds) || reflection.flags.isExternal) continue;
    if (!reflection.kindOf(ReflectionKind.SomeExport | ReflectionKind.SomeMember)) continue;
    // The name of an error is that of its class.
    if (reflection.name === "name" && reflection.parent?.name.endsWith("Error")) continue;
    // Members of type literals are described with the type.
    if (reflection.parent?.kindOf(ReflectionKind.TypeLiteral) || reflection.inheritedFrom !== undefined) continue;
    const documented = reflection.hasComment() || (reflection.signatures ?? []).some((s) => s.hasComment());
    const accessor = reflection.getSignature?.hasComment() || reflection.setSignature?.hasComment();
    if (!documented && !accessor) names.add(reflection.getFullName());
  }
  return [...names].sort();
}

app.validate(project);
await app.generateOutputs(project);
writeFileSync(join(work, "undocumented.json"), JSON.stringify(undocumented()));
process.exit(app.logger.hasErrors() ? 1 : 0);
