// weft init: what it writes is linted and run. weft completion: the script completes in a real shell. weft compare.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "@weft/core";
import { has, installDebian } from "@weft/testing/debian";
import { goals } from "../commands/init-templates.js";

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "weft-init-"));
after(() => rmSync(folder, { recursive: true, force: true }));
symlinkSync(fileURLToPath(new URL("../../../../node_modules", import.meta.url)), join(folder, "node_modules"));
const bin = join(folder, "bin");

/** Runs a command line in a folder, with `weft` on the path. */
function type(line: string, cwd: string): string {
  const env = {
    ...process.env,
    PATH: `${bin}:${process.env.PATH}`,
    WEFT_DATASETS: join(folder, "data"),
    NO_COLOR: "1",
  };
  const { status, stdout, stderr } = spawnSync("bash", ["-c", line], { cwd, env, encoding: "utf8", timeout: 180_000 });
  assert.equal(status, 0, `${line}\n${stdout}${stderr}`);
  return stdout;
}
spawnSync("mkdir", ["-p", bin]);
writeFileSync(join(bin, "weft"), `#!/bin/sh\nexec ${process.execPath} ${weft} "$@"\n`, { mode: 0o755 });

/** The commands that each goal says to type, as far as one machine can run them in a test: shortened, and what comes out. */
const runs: Record<string, [line: string, out: RegExp][]> = {
  text: [
    ["weft train text.yaml --max-steps 3", /done after 3 steps/],
    ['weft classify runs/text "some text"', /some text|%|0\.\d/],
  ],
  model: [
    ["weft train model.yaml --max-steps 4", /done after 4 steps/],
    ["weft train model.yaml --devices 2 --max-steps 4 --output runs/two", /2 ranks.*done after 4 steps/s],
  ],
  quantum: [
    ["weft quantum run quantum.yaml --no-gradient", /average infidelity \d/],
    ["weft quantum optimize quantum.yaml --out runs/quantum --iterations 3", /infidelity .* -> /],
  ],
  pytorch: [
    ["weft scale --dry-run --launcher sbatch --devices 1,2 -- torchrun --nproc_per_node={n} train.py", /2 runs/],
  ],
  slurm: [["node slurm.mjs", /mean 0\.\d+ on cpu|reference/]],
};

/** The files use several ranks and workers. */
const needsCompiler = { skip: CpuDevice.available() ? false : "no C compiler" };

test("every goal writes files that pass the linter, name their schema, and run", needsCompiler, () => {
  assert.deepEqual(Object.keys(runs), Object.keys(goals));
  for (const [goal, lines] of Object.entries(runs)) {
    const home = join(folder, goal);
    const said = type(`weft init ${goal} ${home}`, folder);
    assert.match(said, /Type:/);
    type("weft lint *.yaml *.sh || [ ! -e *.sh ] && weft lint *.yaml", home);
    for (const line of type("head -qn1 *.yaml", home).trim().split("\n")) {
      const schema = /^# yaml-language-server: \$schema=(\S+)$/.exec(line)?.[1];
      assert.ok(schema !== undefined && existsSync(join(home, schema)), `${goal}: ${line}`);
    }
    for (const [line, out] of lines) assert.match(type(line, home), out, line);
  }
  type("bash -n measure.sh && grep -q -- '--devices 1,2' measure.sh", join(folder, "pytorch"));
});

test("init refuses to overwrite and suggests a goal", () => {
  const refused = (line: string): string => {
    const env = { ...process.env, PATH: `${bin}:${process.env.PATH}` };
    const { status, stderr } = spawnSync("bash", ["-c", line], { cwd: folder, env, encoding: "utf8" });
    assert.notEqual(status, 0, line);
    return stderr;
  };
  assert.match(refused("weft init < /dev/null"), /questions need a terminal/);
  assert.match(refused("weft init txt"), /did you mean text/);
  assert.match(refused("weft init text text"), /already exist in text/);
  assert.match(refused("weft init text new --name ../x"), /letters, digits/);
  type("weft init text text --force --name other", folder);
  assert.match(readFileSync(join(folder, "text", "other.yaml"), "utf8"), /^name: other$/m);
});

test("init asks on a terminal", { skip: installDebian(["bsdutils"], () => has("script")) ?? false }, () => {
  const line = `(echo 3; echo gate; sleep 3) | script -qec "weft init" /dev/null`;
  const asked = spawnSync("bash", ["-c", line], {
    cwd: bin,
    env: { ...process.env, PATH: `${bin}:${process.env.PATH}` },
    encoding: "utf8",
    timeout: 60_000,
  });
  assert.ok(existsSync(join(bin, "gate.yaml")), asked.stdout + asked.stderr);
});

test("the completion of bash completes commands, options and choices", () => {
  const complete = (...words: string[]): string =>
    type(
      `source <(weft completion bash); COMP_WORDS=(${words.map((w) => `"${w}"`).join(" ")}); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _weft; echo "\${COMPREPLY[@]}"`,
      folder,
    ).trim();
  assert.equal(complete("weft", "quantum", "opt"), "optimize");
  assert.equal(complete("weft", "train", "x.yaml", "--laun"), "--launcher");
  assert.equal(complete("weft", "train", "--launcher", ""), "local ray");
});

test("fish completes commands, options and choices", {
  skip: installDebian(["fish"], () => has("fish")) ?? false,
}, () => {
  type("weft completion fish > weft.fish", folder);
  const complete = (line: string): string =>
    type(`fish -c 'source weft.fish; complete -C "${line}"' | cut -f1`, folder).trim();
  assert.equal(complete("weft quantum opt"), "optimize");
  assert.equal(complete("weft train x.yaml --laun"), "--launcher");
  assert.deepEqual(complete("weft train --launcher ").split("\n").sort(), ["local", "ray"]);
});

test("zsh completes commands, options, choices and files without a start-up file", {
  skip: installDebian(["zsh", "bsdutils"], () => has("zsh") && has("script")) ?? false,
}, () => {
  type("weft completion zsh > weft.zsh; touch only-file.yaml", folder);
  // What is completed on a terminal is typed into a function that prints it.
  const keys = ["quantum opt\\t", "train x.yaml --laun\\tray", "train --launcher lo\\t", "lint only-f\\t"]
    .map((text) => `printf 'weft ${text}\\n'; sleep 1`)
    .join("; ");
  const line = `(echo 'source weft.zsh; weft() { print -r -- "typed $*" }'; sleep 2; ${keys}; echo exit) | script -qec 'zsh -f -i' /dev/null`;
  const typed = [...type(line, folder).matchAll(/^typed (.*?)\s*$/gm)].map(([, text]) => text);
  assert.deepEqual(typed, [
    "quantum optimize",
    "train x.yaml --launcher ray",
    "train --launcher local",
    "lint only-file.yaml",
  ]);
});

test("compare shows settings that differ, then which is better", needsCompiler, () => {
  const home = join(folder, "model");
  type("weft train model.yaml --output runs/slow --set optimizer.learning_rate=0.0001", home);
  type("weft train model.yaml --output runs/fast --set optimizer.learning_rate=0.05", home);
  const text = type("weft compare runs/slow runs/fast", home);
  assert.match(text.split("\n")[0], /^runs\/fast is better in validation loss/);
  assert.match(text, /optimizer\.learning_rate +0\.0001 +0\.05/);
  assert.doesNotMatch(text, /model\.d_model|^output/m);
  const record = join(home, "runs/slow/run.json");
  const ended = { ...(JSON.parse(readFileSync(record, "utf8")) as object), status: "failed", message: "step 6: NaN" };
  writeFileSync(record, JSON.stringify(ended));
  assert.match(type("weft compare runs/slow runs/fast", home), /^runs\/slow failed: step 6: NaN\n/);
  const bench = (times: number[]): string => JSON.stringify({ benchmark: "x", rows: [{ id: "a", seconds: times }] });
  writeFileSync(join(home, "one.json"), bench([1, 1.01, 0.99, 1.02, 1]));
  writeFileSync(join(home, "two.json"), bench([2, 2.01, 1.99, 2.02, 2]));
  assert.match(type("weft compare one.json two.json", home), /two\.json is slower: rows\.a\.seconds 2\.000x/);
  assert.match(type("weft compare two.json one.json", home), /one\.json is faster: rows\.a\.seconds 0\.500x/);
  assert.match(type("weft compare one.json one.json", home), /no clear difference/);
  type("weft quantum run ../quantum/quantum.yaml --json --no-gradient > a.json", home);
  type("weft quantum run ../quantum/quantum.yaml --json --no-gradient --set q.x.length=11 > b.json", home);
  assert.match(type("weft compare a.json b.json", home), /is (better|worse) in infidelity/);
});
