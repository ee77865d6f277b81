// The C and CUDA sources compile without warnings: as units of the libraries, and as what generated programs include. CUDA goes
// through the headers of the emulator.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { findCompiler } from "./cpu/compiler.js";
import { runtimeUnits, unitsOf, vectorMathUnits, wholePrelude } from "./cpu/native-units.js";
import { selfTestSource } from "./cpu/self-test.js";
import { canEmulate } from "./cuda/emulated/index.js";
import { libraryFiles } from "./cuda/library-modules.js";
import { preludeFiles } from "./cuda/prelude.js";
import { groupSource } from "./group/native/library.js";
import { nativeSource } from "./native-source.js";

const warnings = ["-Wall", "-Wextra", "-Werror", "-c", "-o", "/dev/null"];

function compile(command: string, args: readonly string[], source: string): void {
  const done = spawnSync(command, [...args, ...warnings, "-"], { input: source, encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr.slice(0, 4000));
}

const c = ["-x", "c", "-std=gnu11", "-O2", "-fopenmp"];
const units: Record<string, () => string[]> = {
  "the runtime library": runtimeUnits,
  "linear algebra": () => unitsOf("linalg"),
  convolutions: () => unitsOf("conv"),
  "Fourier transforms": () => unitsOf("fft"),
  "vector math": vectorMathUnits,
  "process groups": () => [groupSource()],
  "the self-test": () => [selfTestSource()],
  "the prelude of generated programs": () => [wholePrelude()],
};
for (const [name, sources] of Object.entries(units))
  test(`${name} compiles without warnings`, { skip: findCompiler() === null ? "no C compiler" : false }, () => {
    for (const source of sources()) compile(findCompiler()!.command, c, source);
  });

// g++ does not know the pragmas of CUDA.
const cuda = ["-x", "c++", "-std=c++17", "-fno-strict-aliasing", "-Wno-unknown-pragmas"];
const emulator = "cuda/emulated/emulator.h";
const programs: Record<string, readonly string[]> = {
  "the kernels of library ops": [emulator, ...libraryFiles],
  "the prelude of CUDA programs": [emulator, ...preludeFiles],
  "the emulator's products": ["cuda/emulated/gemm.cc"],
};
for (const [name, files] of Object.entries(programs))
  test(`${name} compiles without warnings`, { skip: canEmulate() ? false : "no C++ compiler" }, () =>
    compile("c++", cuda, nativeSource(...files)),
  );

test("headers are included once, and system headers stay", () => {
  const text = nativeSource("cpu/native/program.h", "cpu/native/abi.h");
  assert.equal(text.match(/} weft_runtime;/g)?.length, 1);
  assert.doesNotMatch(text, /#include "|#pragma once/);
  assert.match(text, /#include <stdint\.h>/);
});
