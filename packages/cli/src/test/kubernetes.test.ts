// The manifests of deploy/kubernetes: valid by the schemas of Kubernetes (an npm package, installed by the test), and made of
// commands, options and variables that Weft has.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { allSettings } from "@weft/core/internal/settings";
import "@weft/train";
import { parseAllDocuments } from "yaml";

const root = fileURLToPath(new URL("../../../..", import.meta.url));
const folder = join(root, "deploy/kubernetes");
const skip = existsSync(folder) ? false : "not in a checkout";

interface Manifest {
  apiVersion: string;
  kind: string;
  spec: Record<string, never>;
}

const manifests = (): { file: string; manifest: Manifest }[] =>
  readdirSync(folder).flatMap((file) =>
    parseAllDocuments(readFileSync(join(folder, file), "utf8")).map((document) => ({
      file,
      manifest: document.toJS() as Manifest,
    })),
  );

/** The classes of Kubernetes' objects, which validate against its schemas; null where npm cannot get them. */
function kubernetes(): ((path: string) => Promise<Record<string, new (data: object) => { validate(): void }>>) | null {
  const place = join(homedir(), ".cache", "weft", "npm", "kubernetes-models");
  if (!existsSync(join(place, "node_modules/kubernetes-models"))) {
    mkdirSync(place, { recursive: true });
    spawnSync(
      "npm",
      ["install", "--prefix", place, "--no-audit", "--no-fund", "--ignore-scripts", "kubernetes-models@5"],
      { timeout: 120_000 },
    );
  }
  if (!existsSync(join(place, "node_modules/kubernetes-models"))) return null;
  return (path) => import(pathToFileURL(join(place, "node_modules/kubernetes-models", path, "index.js")).href) as never;
}

test("the manifests are valid by the schemas of Kubernetes", { skip }, async (t) => {
  const load = kubernetes();
  if (load === null) {
    console.error("SKIPPED: npm cannot install kubernetes-models; the manifests were not validated");
    t.skip("no kubernetes-models");
    return;
  }
  for (const { file, manifest } of manifests()) {
    const { [manifest.kind]: Kind } = await load(manifest.apiVersion);
    assert.ok(Kind, `${file}: ${manifest.apiVersion} ${manifest.kind}`);
    new Kind(manifest).validate();
    // The schemas are alive: a wrong object is found.
    assert.throws(() =>
      new Kind({ ...manifest, spec: { ...manifest.spec, replicas: "x", completions: "x", ports: 3 } }).validate(),
    );
  }
});

interface Container {
  args: string[];
  env: { name: string }[];
}

test("commands, options and variables of the manifests exist", { skip }, () => {
  const known = new Set(allSettings().map(({ name }) => name));
  const main = join(root, "packages/cli/dist/main.js");
  let containers = 0;
  for (const { file, manifest } of manifests()) {
    const pods =
      (manifest.spec as { template?: { spec: { containers: Container[] } } }).template?.spec.containers ?? [];
    for (const { args, env } of pods) {
      containers++;
      const { stdout } = spawnSync(process.execPath, [main, args[0], "--help"], { encoding: "utf8" });
      for (const option of args.filter((arg) => arg.startsWith("-")))
        assert.ok(stdout.includes(option), `${file}: weft ${args[0]} has no ${option}`);
      for (const { name } of env) if (name.startsWith("WEFT_")) assert.ok(known.has(name), `${file}: ${name}`);
    }
  }
  assert.equal(containers, 3);
});

test("the image installs every package that the command needs", { skip }, () => {
  const needed = new Set<string>();
  const add = (name: string): void => {
    if (needed.has(name)) return;
    needed.add(name);
    const { dependencies = {} } = JSON.parse(readFileSync(join(root, "packages", name, "package.json"), "utf8")) as {
      dependencies?: Record<string, string>;
    };
    for (const other of Object.keys(dependencies)) if (other.startsWith("@weft/")) add(other.slice("@weft/".length));
  };
  add("cli");
  const [, packed] = /for name in ([\w ]+);/.exec(readFileSync(join(root, "deploy/Dockerfile"), "utf8"))!;
  assert.deepEqual([...needed].sort(), packed.split(" ").sort());
});
