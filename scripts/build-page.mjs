// Bundles the page of @weft/ui: TypeScript, Preact and uPlot become one script and one style sheet in its dist folder, so that
// the installed package needs neither a build step nor a network. Licenses of what is bundled go beside them.
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./setup.mjs";

/** Writes dist/page of @weft/ui. */
export async function buildPage() {
  const { build } = await import("esbuild");
  const [from, to] = ["src/page", "dist/page"].map((folder) => join(root, "packages/ui", folder));
  const made = await build({
    entryPoints: [join(from, "app.tsx")],
    outdir: to,
    bundle: true,
    minify: true,
    format: "esm",
    target: ["chrome100", "firefox100", "safari15.4"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    metafile: true,
    logLevel: "warning",
  });
  for (const name of ["index.html", "favicon.svg"]) copyFileSync(join(from, name), join(to, name));
  const packages = new Set(
    Object.keys(made.metafile.inputs).flatMap(
      (path) => /^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? [],
    ),
  );
  const licenses = [...packages].sort().map((name) => {
    const text = readFileSync(join(root, "node_modules", name, "LICENSE"), "utf8");
    return `${name}\n\n${text.trim()}\n`;
  });
  writeFileSync(join(to, "LICENSES.txt"), licenses.join("\n\n"));
}
