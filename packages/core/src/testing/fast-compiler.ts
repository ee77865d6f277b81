// A C compiler for tests that load many libraries: it compiles without optimizing, and on request links copies of one
// library instead of compiling, so that hundreds of distinct files take seconds.
import { chmodSync, copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface FastCompiler {
  /** Links a copy of the newest compiled library for every program that follows. */
  copyFrom(): void;
  /** Compiles again. */
  compile(): void;
  /** Number of cached libraries that this process has mapped. */
  loaded(): number;
  remove(): void;
}

/** Writes a C compiler that does not optimize into a folder, as a command for `WEFT_CC`. */
export function unoptimizedCompiler(folder: string, before = ""): string {
  const command = join(folder, "cc");
  writeFileSync(command, `#!/bin/sh\n${before}exec cc "$@" -O0\n`);
  chmodSync(command, 0o755);
  return command;
}

/** Installs the compiler and an empty kernel cache for this process. Call it before the first device is created. */
export function useFastCompiler(): FastCompiler {
  const folder = mkdtempSync(join(tmpdir(), "weft-fast-cc-"));
  const template = join(folder, "template.so");
  const copies = `*-shared*) while [ "$1" != -o ]; do shift; done; exec cp "${template}" "$2";;`;
  const copy = `if [ -f "${template}" ]; then case " $* " in ${copies} *".c "*) exit 0;; esac; fi\n`;
  process.env.WEFT_CACHE_DIR = folder;
  process.env.WEFT_CC = unoptimizedCompiler(folder, copy);
  const cached = join(folder, "cpu");
  let before = new Set<string>();
  return {
    copyFrom: () => {
      const fresh = readdirSync(cached).find((name) => name.endsWith(".so") && !before.has(name))!;
      copyFileSync(join(cached, fresh), template);
    },
    compile: () => {
      before = new Set(readdirSync(cached));
      rmSync(template, { force: true });
    },
    loaded: () =>
      new Set(
        readFileSync("/proc/self/maps", "utf8")
          .split("\n")
          .map((line) => line.slice(line.indexOf("/")))
          .filter((path) => path.startsWith(cached)),
      ).size,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
