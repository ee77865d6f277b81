// Startup of the command: `weft --version` and `weft --help` load none of the packages that commands use.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Command } from "commander";
import { addCommands, commands } from "../commands/index.js";

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));

/** Prints the URL of every module that the process loads on standard error. */
const hooks = `data:text/javascript,${encodeURIComponent(`
  import { writeSync } from "node:fs";
  export async function load(url, context, next) { writeSync(2, "loaded " + url + "\\n"); return next(url, context); }
`)}`;
const register = `data:text/javascript,${encodeURIComponent(`
  import { register } from "node:module";
  register(${JSON.stringify(hooks)});
`)}`;

function loadedBy(args: string[]): string[] {
  const { stderr } = spawnSync(process.execPath, ["--import", register, weft, ...args], { encoding: "utf8" });
  return [...stderr.matchAll(/^loaded (.*)$/gm)].map((match) => match[1]);
}

const heavy = /@grpc|vega|duckdb|koffi|\/(core|cluster|train|quantum|lab|ui|bench)\/dist\/|zod|yaml/;

for (const args of [["--version"], ["--help"], ["help"], []]) {
  test(`weft ${args.join(" ")} loads commander and the command's own files only`, () => {
    const loaded = loadedBy(args);
    assert.ok(
      loaded.some((url) => url.includes("commander")),
      "the trace sees modules",
    );
    assert.deepEqual(
      loaded.filter((url) => heavy.test(url)),
      [],
    );
    assert.ok(loaded.length < 40, `${loaded.length} modules`);
  });
}

for (const command of ["train", "classify", "generate", "server", "worker", "top", "tape", "ui"])
  test(`weft ${command} --help loads none of the packages that the command uses`, () => {
    assert.deepEqual(
      loadedBy([command, "--help"]).filter((url) =>
        /@grpc|vega|duckdb|koffi|\/(cluster|train|lab|ui)\/dist\//.test(url),
      ),
      [],
    );
  });

test("a command that runs loads its packages", () => {
  assert.ok(loadedBy(["train", "missing.yaml"]).some((url) => heavy.test(url)));
});

test("weft --version takes little processor time", () => {
  const script = `process.on("exit", () => { const { user, system } = process.cpuUsage(); process.stderr.write("cpu " + (user + system) / 1e3); });`;
  const measured = Array.from({ length: 3 }, () => {
    const child = spawnSync(
      process.execPath,
      ["--import", `data:text/javascript,${encodeURIComponent(script)}`, weft, "--version"],
      { encoding: "utf8" },
    );
    return Number(/cpu ([\d.]+)/.exec(child.stderr)?.[1]);
  });
  // About 60 ms; a busy machine takes longer, loading the engine takes 500 ms.
  assert.ok(Math.min(...measured) < 250, `${measured.join(", ")} ms`);
});

test("the list of commands says what the commands' modules say", async () => {
  const [listed, full] = [new Command("weft"), new Command("weft")];
  await addCommands(listed, []);
  await addCommands(full, [], true);
  assert.equal(full.commands.length, Object.keys(commands).length, "every command is in a group");
  assert.equal(listed.helpInformation(), full.helpInformation());
});
