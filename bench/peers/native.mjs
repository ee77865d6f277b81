// Native code as a contestant: OpenBLAS called directly through koffi, and the compiled copy loop.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import koffi from "koffi";
import { findOpenBlas } from "../../packages/core/dist/device/cpu/openblas.js";
import * as data from "../lib/data.mjs";
import { serve } from "../lib/serve.mjs";

const threads = Number(process.env.OMP_NUM_THREADS ?? 1);

function loadBlas() {
  const path = findOpenBlas();
  if (path === null) throw new Error("OpenBLAS was not found");
  const library = koffi.load(path);
  library.func("void openblas_set_num_threads(int n)")(threads);
  return library.func(
    "void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda, " +
      "const float* b, int ldb, float beta, _Out_ float* c, int ldc)",
  );
}

function matmul(n) {
  const sgemm = loadBlas();
  const [a, b, c] = [data.uniform(n * n, 1), data.uniform(n * n, 2), new Float32Array(n * n)];
  const call = () => sgemm(101, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
  call();
  return { check: data.freivalds(a, b, c, n), call };
}

function copier(name) {
  const folder = mkdtempSync(join(tmpdir(), "weft-copy-"));
  const source = fileURLToPath(new URL("copy.c", import.meta.url));
  const target = join(folder, "copy.so");
  // Without the last flag gcc turns the loop into memcpy, which is the other row.
  const flags = ["-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-fno-tree-loop-distribute-patterns"];
  const done = spawnSync("cc", [...flags, source, "-o", target], { encoding: "utf8" });
  if (done.status !== 0) throw new Error(`copy.c does not compile: ${done.stderr}`);
  const copy = koffi.load(target).func(`void ${name}(_Out_ float* to, const float* from, int64_t count, int threads)`);
  rmSync(folder, { recursive: true });
  const from = data.uniform(1 << 24, 6, -3, 3);
  const to = new Float32Array(from.length);
  const call = () => copy(to, from, from.length, threads);
  call();
  return { check: data.places(to.length).map((i) => to[i]), call };
}

const rows = {
  ...Object.fromEntries([64, 512, 2048, 4096].map((n) => [`matmul-${n}`, async () => matmul(n)])),
  chain: async () => copier("copy_loop"),
  "chain-memcpy": async () => copier("copy_memcpy"),
};
await serve(rows, { openblas: findOpenBlas(), threads });
