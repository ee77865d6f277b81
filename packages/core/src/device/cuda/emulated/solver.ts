// cuSOLVER and the solving half of cuBLAS played on the host by LAPACK: the same column-major conventions, so what the
// device makes of rows, triangles and phases around the calls is checked without a GPU.
import koffi from "koffi";
import { solverLetters } from "../driver.js";

type Arg = number | Int32Array | string;
type Fortran = (...args: Arg[]) => void;

const int = (...values: number[]): Int32Array => Int32Array.from(values);

/** LAPACK's functions by name; numbers are addresses, arrays are integers by reference. */
function lapack(path: string): (name: string, ...args: Arg[]) => void {
  const library = koffi.load(path);
  const bound = new Map<string, Fortran>();
  const kind = (arg: Arg): string =>
    typeof arg === "number" ? "uint64_t" : typeof arg === "string" ? "const char*" : "_Inout_ int*";
  return (name, ...args) => {
    const key = `${name}(${args.map(kind).join(", ")})`;
    let fn = bound.get(key);
    if (fn === undefined) {
      fn = library.func(`void ${name}_(${args.map(kind).join(", ")})`) as unknown as Fortran;
      bound.set(key, fn);
    }
    fn(...args);
  };
}

const letterOf: Record<number, "s" | "d" | "c" | "z"> = { 0: "s", 1: "d", 4: "c", 5: "z" };
const bytesOf = { s: 4, d: 8, c: 8, z: 16 };
const realBytes = { s: 4, d: 8, c: 4, z: 8 };
const isComplex = (letter: string): boolean => letter === "c" || letter === "z";
const fill = ["L", "U"];
const transposed = ["N", "T", "C"];

const numbersAt = (address: number, count: number): BigUint64Array =>
  new BigUint64Array(koffi.view(BigInt(address), 8 * count) as ArrayBuffer);
const intsAt = (address: number, count: number): Int32Array =>
  new Int32Array(koffi.view(BigInt(address), 4 * count) as ArrayBuffer);

/** Memory that the host's libraries may use while a call lasts. */
const scratch = (() => {
  const libc = koffi.load("libc.so.6");
  const malloc = libc.func("uint64_t malloc(uint64_t bytes)");
  const free = libc.func("void free(uint64_t at)");
  return <T>(bytes: number, use: (address: number) => T): T => {
    const address = Number(malloc(Math.max(8, bytes)));
    try {
      return use(address);
    } finally {
      free(address);
    }
  };
})();

type Table = Record<string, (...args: never[]) => number>;

/** `log` is called with the name of every call that computes. */
export function emulatedSolver(path: string, log: (name: string) => void): { solver: Table; blas: Table } {
  const call = lapack(path);
  let handle = 1;
  const make = (out: BigUint64Array): number => {
    out[0] = BigInt(handle++);
    return 0;
  };
  const noWorkspace = (...args: unknown[]): number => {
    for (const out of args) if (out instanceof BigUint64Array) out[0] = 0n;
    return 0;
  };
  const noWords = (...args: unknown[]): number => {
    for (const out of args) if (out instanceof Int32Array) out[0] = 0;
    return 0;
  };
  const info = (address: number, value: Int32Array): number => {
    intsAt(address, 1)[0] = value[0];
    return 0;
  };

  const syevd = (l: "s" | "d" | "c" | "z", uplo: number, n: number, a: number, w: number, at: number): number => {
    const failed = int(0);
    scratch(bytesOf[l] * (3 * n * n + 10 * n + 100), (work) =>
      scratch(8 * (6 * n * n + 20 * n + 100), (real) =>
        scratch(4 * (10 * n + 100), (ints) => {
          const sizes = [work, int(3 * n * n + 10 * n + 100)];
          const reals = isComplex(l) ? [real, int(6 * n * n + 20 * n + 100)] : [];
          const name = isComplex(l) ? `${l}heevd` : `${l}syevd`;
          call(name, "V", fill[uplo], int(n), a, int(n), w, ...sizes, ...reals, ints, int(10 * n + 100), failed);
        }),
      ),
    );
    return info(at, failed);
  };
  const gesvd = (l: "s" | "d" | "c" | "z", m: number, n: number, [a, s, u, vt]: number[], job: string) => {
    const failed = int(0);
    const k = Math.min(m, n);
    const words = 10 * (m + n) * (m + n) + 100;
    scratch(bytesOf[l] * words, (work) =>
      scratch(8 * (10 * k + 10), (real) => {
        const reals = isComplex(l) ? [real] : [];
        const ldvt = job === "A" ? n : k;
        call(
          `${l}gesvd`,
          job,
          job,
          int(m),
          int(n),
          a,
          int(m),
          s,
          u,
          int(m),
          vt,
          int(ldvt),
          work,
          int(words),
          ...reals,
          failed,
        );
      }),
    );
  };
  /** Column-major transposition with conjugation, in place of a square matrix. */
  const adjoint = (l: "s" | "d" | "c" | "z", n: number, at: number): void => {
    const parts = isComplex(l) ? 2 : 1;
    const bytes = koffi.view(BigInt(at), bytesOf[l] * n * n) as ArrayBuffer;
    const x = realBytes[l] === 4 ? new Float32Array(bytes) : new Float64Array(bytes);
    const copy = x.slice();
    for (let i = 0; i < n; i++)
      for (let j = 0; j < n; j++)
        for (let p = 0; p < parts; p++) x[(i * n + j) * parts + p] = (p === 1 ? -1 : 1) * copy[(j * n + i) * parts + p];
  };

  const solver: Table = {
    cusolverDnCreate: make,
    cusolverDnSetStream: () => 0,
    cusolverDnCreateParams: make,
    cusolverDnCreateGesvdjInfo: make,
    cusolverDnXsyevd_bufferSize: noWorkspace,
    cusolverDnXsyevd: (...args: number[]) => {
      log("syevd");
      return syevd(letterOf[args[5]], args[3], args[4], args[6], args[9], args[15]);
    },
    cusolverDnXsyevBatched_bufferSize: noWorkspace,
    cusolverDnXsyevBatched: (...args: number[]) => {
      log("syevBatched");
      const [l, n] = [letterOf[args[5]], args[4]];
      for (let g = 0; g < args[16]; g++)
        syevd(l, args[3], n, args[6] + g * bytesOf[l] * n * n, args[9] + g * realBytes[l] * n, args[15] + 4 * g);
      return 0;
    },
    cusolverDnXpotrf_bufferSize: noWorkspace,
    cusolverDnXpotrf: (...args: number[]) => {
      log("potrf");
      const failed = int(0);
      call(`${letterOf[args[4]]}potrf`, fill[args[2]], int(args[3]), args[5], int(args[6]), failed);
      return info(args[12], failed);
    },
    cusolverDnXgeqrf_bufferSize: noWorkspace,
    cusolverDnXgeqrf: (...args: number[]) => {
      log("geqrf");
      const [m, n, l] = [args[2], args[3], letterOf[args[4]]];
      const failed = int(0);
      scratch(bytesOf[l] * 64 * n, (work) =>
        call(`${l}geqrf`, int(m), int(n), args[5], int(args[6]), args[8], work, int(64 * n), failed),
      );
      return info(args[14], failed);
    },
    cusolverDnXgetrf_bufferSize: noWorkspace,
    cusolverDnXgetrf: (...args: number[]) => {
      log("getrf");
      const [m, n] = args.slice(2, 4);
      const k = Math.min(m, n);
      const failed = int(0);
      scratch(4 * k, (pivots) => {
        call(`${letterOf[args[4]]}getrf`, int(m), int(n), args[5], int(args[6]), pivots, failed);
        numbersAt(args[7], k).set(Array.from(intsAt(pivots, k), BigInt));
      });
      return info(args[13], failed);
    },
    cusolverDnXgetrs: (...args: number[]) => {
      const [trans, n, k] = args.slice(2, 5);
      const failed = int(0);
      scratch(4 * n, (pivots) => {
        intsAt(pivots, n).set(Array.from(numbersAt(args[8], n), Number));
        const l = letterOf[args[5]];
        call(
          `${l}getrs`,
          transposed[trans],
          int(n),
          int(k),
          args[6],
          int(args[7]),
          pivots,
          args[10],
          int(args[11]),
          failed,
        );
      });
      return info(args[12], failed);
    },
    cusolverDnXgesvd_bufferSize: noWorkspace,
    cusolverDnXgesvd: (...args: number[]) => {
      log("gesvd");
      gesvd(letterOf[args[6]], args[4], args[5], [args[7], args[10], args[12], args[15]], "S");
      return 0;
    },
  };
  const blas: Table = {};
  for (const letter of solverLetters) {
    const l = letter.toLowerCase() as "s" | "d" | "c" | "z";
    const form = isComplex(l) ? "un" : "or";
    solver[`cusolverDn${letter}potrfBatched`] = (...args: number[]) => {
      log("potrfBatched");
      const [, uplo, n, table, lda, flags, count] = args;
      numbersAt(table, count).forEach((a, g) => {
        const failed = int(0);
        call(`${l}potrf`, fill[uplo], int(n), Number(a), int(lda), failed);
        intsAt(flags, count)[g] = failed[0];
      });
      return 0;
    };
    solver[`cusolverDn${letter}${form}gqr_bufferSize`] = noWords;
    solver[`cusolverDn${letter}${form}gqr`] = (...args: number[]) => {
      const [, m, n, k, a, lda, tau] = args;
      const failed = int(0);
      scratch(bytesOf[l] * 64 * Math.max(1, n), (work) =>
        call(`${l}${form}gqr`, int(m), int(n), int(k), a, int(lda), tau, work, int(64 * n), failed),
      );
      return 0;
    };
    // Not emulated: it says that it did not converge, after which the device takes the QR method.
    solver[`cusolverDn${letter}gesvdj_bufferSize`] = noWords;
    solver[`cusolverDn${letter}gesvdj`] = (...args: number[]) => {
      intsAt(args[args.length - 2], 1)[0] = 1;
      return 0;
    };
    solver[`cusolverDn${letter}gesvdjBatched_bufferSize`] = noWords;
    solver[`cusolverDn${letter}gesvdjBatched`] = (...args: number[]) => {
      log("gesvdjBatched");
      const [, , m, n, a, , s, u, , v, , , , , , count] = args;
      const k = Math.min(m, n);
      for (let g = 0; g < count; g++) {
        const [at, vt] = [g * bytesOf[l], v + g * bytesOf[l] * n * n];
        gesvd(l, m, n, [a + at * m * n, s + g * realBytes[l] * k, u + at * m * m, vt], "A");
        adjoint(l, n, vt);
      }
      return 0;
    };
    blas[`cublas${letter}getrfBatched`] = (...args: number[]) => {
      log("getrfBatched");
      const [, n, table, lda, pivots, flags, count] = args;
      numbersAt(table, count).forEach((a, g) => {
        const failed = int(0);
        call(`${l}getrf`, int(n), int(n), Number(a), int(lda), pivots + 4 * n * g, failed);
        intsAt(flags, count)[g] = failed[0];
      });
      return 0;
    };
    blas[`cublas${letter}getrsBatched`] = (...args: number[]) => {
      const [, trans, n, k, table, lda, pivots, sides, ldb, , count] = args;
      const right = numbersAt(sides, count);
      numbersAt(table, count).forEach((a, g) => {
        const failed = int(0);
        const side = [Number(right[g]), int(ldb)];
        call(`${l}getrs`, transposed[trans], int(n), int(k), Number(a), int(lda), pivots + 4 * n * g, ...side, failed);
      });
      return 0;
    };
    const trsm = (form: number[], a: number, lda: number, b: number, ldb: number): void => {
      const [, side, uplo, trans, diag, m, n, alpha] = form;
      const flags = ["LR"[side], fill[uplo], transposed[trans], "NU"[diag]];
      call(`${l}trsm`, ...flags, int(m), int(n), alpha, a, int(lda), b, int(ldb));
    };
    blas[`cublas${letter}trsm_v2`] = (...args: number[]) => {
      log("trsm");
      const [a, lda, b, ldb] = args.slice(8);
      trsm(args, a, lda, b, ldb);
      return 0;
    };
    blas[`cublas${letter}trsv_v2`] = (...args: number[]) => {
      log("trsv");
      const [, uplo, trans, diag, n, a, lda, x, step] = args;
      call(`${l}trsv`, fill[uplo], transposed[trans], "NU"[diag], int(n), a, int(lda), x, int(step));
      return 0;
    };
    blas[`cublas${letter}trsmBatched`] = (...args: number[]) => {
      log("trsmBatched");
      const [as, lda, bs, ldb, count] = args.slice(8);
      const right = numbersAt(bs, count);
      numbersAt(as, count).forEach((a, g) => {
        trsm(args, Number(a), lda, Number(right[g]), ldb);
      });
      return 0;
    };
  }
  return { solver, blas };
}
