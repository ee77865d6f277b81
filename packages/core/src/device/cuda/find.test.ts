// Where NVIDIA's libraries are looked for: $CUDA_HOME first, then the system, then the wheels of Python environments.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { findCompiler } from "../cpu/compiler.js";
import { searchFolders } from "./find.js";

const names = ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PATH"] as const;

/** The folders that are searched with other variables of the environment. */
function searched(changes: Partial<Record<(typeof names)[number], string>>): string[] {
  const before = names.map((name) => process.env[name]);
  try {
    for (const name of names) {
      const value = changes[name];
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    return searchFolders();
  } finally {
    names.forEach((name, i) => {
      const value = before[i];
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    });
  }
}

test("CUDA_HOME, virtual environments, conda, and the environment of a python3 on the path", () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-find-"));
  try {
    const make = (...parts: string[]): string => {
      const path = join(folder, ...parts);
      mkdirSync(path, { recursive: true });
      return path;
    };
    const home = make("cuda", "lib64");
    // One folder per library up to CUDA 12, one per release since 13.
    const wheel = make("venv/lib/python3.12/site-packages/nvidia/cublas/lib");
    const conda = make("conda/lib/python3.11/site-packages/nvidia/cu13/lib");
    const onPath = make("other/lib/python3.10/dist-packages/nvidia/cusolver/lib");
    writeFileSync(join(make("other/bin"), "python3"), "");
    const found = searched({
      CUDA_HOME: join(folder, "cuda"),
      VIRTUAL_ENV: join(folder, "venv"),
      CONDA_PREFIX: join(folder, "conda"),
      PATH: `${join(folder, "empty/bin")}:${join(folder, "other/bin")}`,
    });
    const mine = found.filter((path) => path.startsWith(folder));
    assert.deepEqual(mine, [home, wheel, conda, onPath]);
    assert.equal(found[0], home, "the user's own choice first");
    assert.ok(!searched({ PATH: "" }).some((path) => path.startsWith(folder)));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("what NVRTC opens by its name is found beside it, as in a wheel", {
  skip: findCompiler() === null ? "no C compiler" : false,
}, (t) => {
  const folder = mkdtempSync(join(tmpdir(), "weft-find-"));
  try {
    const place = join(folder, "lib64");
    mkdirSync(place);
    const sources: Record<string, string> = {
      "libnvrtc-builtins.so.13.0": "int there = 1;",
      "libnvrtc.so.13": `#include <dlfcn.h>
        int companion(void) { return dlopen("libnvrtc-builtins.so.13.0", RTLD_LAZY) != 0; }`,
    };
    for (const [name, input] of Object.entries(sources)) {
      const args = ["-shared", "-fPIC", `-Wl,-soname,${name}`, "-o", join(place, name), "-x", "c", "-"];
      assert.equal(spawnSync(findCompiler()!.command, args, { input }).status, 0);
    }
    const script = `
      const { findLibrary } = await import(${JSON.stringify(new URL("./find.js", import.meta.url).href)});
      const { path, library } = findLibrary("nvrtc");
      console.log(path.startsWith(process.env.CUDA_HOME) ? library.func("int companion()")() : "another");`;
    const env = { ...process.env, CUDA_HOME: folder };
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", script], { env, encoding: "utf8" });
    if (stdout.trim() === "another") t.skip("NVRTC is among the system's libraries");
    else assert.equal(stdout.trim(), "1");
  } finally {
    rmSync(folder, { recursive: true });
  }
});
