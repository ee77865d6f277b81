// The packages as a user gets them: `npm pack`, installed without scripts into an empty TypeScript project, type-checked with
// both ways to resolve modules, and run on every version of Node that is supported.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const published = ["core", "formats", "cluster", "models", "train", "quantum", "lab", "ui", "bench", "cli"];
const nodes = ["22", "24"];

function run(command: string, args: readonly string[], cwd: string, env: NodeJS.ProcessEnv = {}): string {
  const done = spawnSync(command, args, { cwd, encoding: "utf8", timeout: 300_000, env: { ...process.env, ...env } });
  assert.equal(done.status, 0, `${command} ${args.join(" ")}\n${done.stdout}\n${done.stderr}`);
  return done.stdout;
}

const escapeRegExp = (text: string): string => text.replace(/[.+?^${}()|[\]\\]/g, "\\$&");

const program = `
import * as weft from "@weft/core";
import * as io from "@weft/core/io";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";

const layer: nn.Linear = nn.linear.init({ in: 2, out: 1 }, weft.key(1));
const optimizer = optim.sgd({ learningRate: 0.1 });
const loss = (p: nn.Linear): weft.Tensor => nn.linear.apply(p, weft.ones([4, 2])).square().mean();
const step = weft.jit((p: nn.Linear, state: ReturnType<typeof optimizer.init>) =>
  optimizer.update(p, weft.grad(loss)(p), state),
);
const [better] = step(layer, optimizer.init(layer));
const [before, after] = [await loss(layer).item(), await loss(better).item()];
if (!(Number(after) < Number(before))) throw new Error("the loss did not fall");
if (typeof io.load !== "function") throw new Error("io.load is missing");
console.log(weft.system.devices().join(","));
`;

const everything = `
import { connect, distributed } from "@weft/cluster";
import { parseRecord } from "@weft/formats";
import { analyzeStudy } from "@weft/lab";
import { loadPretrained } from "@weft/models";
import { propagator } from "@weft/quantum";
import { train } from "@weft/train";
import { startUi } from "@weft/ui";
for (const f of [connect, distributed.init, parseRecord, analyzeStudy, loadPretrained, propagator, train])
  if (typeof f !== "function") throw new Error("an export is missing");
const ui = await startUi();
const page = await (await fetch(new URL("/app.js", ui.url))).text();
if (page.length < 10_000) throw new Error("the page of the web app is missing");
await ui.close();
console.log("all");
`;

describe("packed packages in an empty project", () => {
  let folder = "";
  let core = "";
  let all = "";
  const tarballs = new Map<string, string>();

  before(() => {
    folder = mkdtempSync(join(tmpdir(), "weft-install-"));
    for (const name of published) {
      const out = run(
        "npm",
        ["pack", "--json", "--ignore-scripts", "--pack-destination", folder],
        join(root, "packages", name),
      );
      const [{ filename }] = JSON.parse(out) as { filename: string }[];
      tarballs.set(name, join(folder, filename.replace("@", "").replace("/", "-")));
    }
    const project = (name: string, packages: readonly string[], source: string): string => {
      const path = join(folder, name);
      mkdirSync(path);
      writeFileSync(join(path, "package.json"), JSON.stringify({ name, private: true, type: "module" }));
      writeFileSync(join(path, "main.ts"), source);
      run(
        "npm",
        [
          "install",
          "--ignore-scripts",
          "--prefer-offline",
          "--no-audit",
          "--no-fund",
          ...packages.map((p) => tarballs.get(p)!),
        ],
        path,
      );
      return path;
    };
    core = project("core-only", ["core"], program);
    all = project("everything", published, everything);
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  test("@weft/core installs koffi and nothing else", () => {
    const names = readdirSync(join(core, "node_modules")).filter((name) => !name.startsWith("."));
    assert.deepEqual(names.sort(), ["@koromix", "@weft", "koffi"]);
    assert.deepEqual(readdirSync(join(core, "node_modules/@weft")), ["core"]);
  });

  test("no tests, emulators or fixtures are published", () => {
    for (const tarball of tarballs.values()) {
      const files = run("tar", ["tzf", tarball], folder).split("\n");
      const unwanted = files.filter((file) =>
        /\.test\.|testkit|testdata|emulated|\/dist\/(test|testing|suites)\//.test(file),
      );
      assert.deepEqual(unwanted, [], tarball);
    }
  });

  test("every package has its readme and license", () => {
    for (const [name, tarball] of tarballs) {
      const files = run("tar", ["tzf", tarball], folder).split("\n");
      for (const file of ["README.md", "LICENSE"])
        assert.ok(files.includes(`package/${file}`), `${name} has no ${file}`);
    }
  });

  test("every export leads to a published file", () => {
    const targets = (value: unknown): string[] =>
      typeof value === "string" ? [value] : Object.values((value ?? {}) as object).flatMap(targets);
    for (const [name, tarball] of tarballs) {
      const files = run("tar", ["tzf", tarball], folder)
        .split("\n")
        .map((file) => file.replace(/^package\//, "./"));
      const text = run("tar", ["xzOf", tarball, "package/package.json"], folder);
      const { exports = {}, bin = {} } = JSON.parse(text) as { exports?: object; bin?: object };
      const wanted = [...targets(exports), ...targets(bin).map((path) => path.replace(/^(?!\.\/)/, "./"))];
      assert.ok(wanted.length > 0, name);
      const here = readdirSync(join(root, "packages", name), { recursive: true }).map((path) => `./${path}`);
      for (const target of wanted) {
        const pattern = new RegExp(`^${target.split("*").map(escapeRegExp).join(".*")}$`);
        const expected = target.includes("*") ? here.filter((path) => pattern.test(path)) : [target];
        assert.ok(expected.length > 0, `${name}: ${target} matches nothing`);
        for (const path of expected) assert.ok(files.includes(path), `${name}: ${path} of ${target} is not published`);
      }
    }
  });

  for (const [resolution, module] of [
    ["nodenext", "nodenext"],
    ["bundler", "esnext"],
  ]) {
    test(`type-checks strictly with ${resolution} resolution`, () => {
      for (const path of [core, all]) {
        const options = [
          "--strict",
          "--noEmit",
          "--target",
          "es2022",
          "--module",
          module,
          "--moduleResolution",
          resolution,
        ];
        const types = ["--typeRoots", join(root, "node_modules/@types"), "--types", "node", "--lib", "es2023"];
        run(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), ...options, ...types, "main.ts"], path);
      }
    });
  }

  const compile = (path: string): string => {
    const options = ["--outDir", "out", "--target", "es2022", "--module", "nodenext", "--skipLibCheck"];
    const types = ["--typeRoots", join(root, "node_modules/@types"), "--types", "node", "--lib", "es2023"];
    run(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), ...options, ...types, "main.ts"], path);
    return join(path, "out/main.js");
  };

  const { version } = JSON.parse(readFileSync(join(root, "packages/cli/package.json"), "utf8")) as { version: string };

  /** A jitted training step, every package, and the command, with one version of Node. */
  const checkOn = (node: string): void => {
    assert.match(run(node, [compile(core)], core), /cpu|reference/);
    assert.match(run(node, [compile(all)], all), /all/);
    const weft = (...args: string[]): string =>
      run(node, [join(all, "node_modules/@weft/cli/bin/weft.js"), ...args], all);
    assert.equal(weft("--version").trim(), version);
    const ownVersion = run(node, ["--version"], all).trim();
    assert.match(weft("doctor", "--no-measure"), new RegExp(`^Node\\s+${escapeRegExp(ownVersion)}`, "m"));
  };

  test("runs on this Node", () => {
    checkOn(process.execPath);
    assert.equal(run(join(all, "node_modules/.bin/weft"), ["--version"], all).trim(), version);
  });

  for (const major of nodes) {
    test(`runs on Node ${major}`, (t) => {
      const place = join(folder, `node${major}`);
      mkdirSync(place);
      const binary = `node-${process.platform}-${process.arch}@${major}`;
      const installed = spawnSync(
        "npm",
        ["install", "--no-save", "--ignore-scripts", "--prefer-offline", "--no-audit", "--prefix", place, binary],
        { cwd: place, stdio: "ignore", timeout: 300_000 },
      );
      if (installed.status !== 0) {
        process.stderr.write(`\nweft: SKIPPED: ${binary} could not be installed; Node ${major} is not tested\n`);
        return t.skip(`${binary} could not be installed`);
      }
      const node = join(place, `node_modules/node-${process.platform}-${process.arch}/bin/node`);
      assert.match(run(node, ["--version"], core), new RegExp(`^v${major}\\.`));
      checkOn(node);
    });
  }
});
