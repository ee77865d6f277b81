// Results of NumPy for the cases: `python3 packages/core/testdata/make_golden.py` writes testdata/golden.ts from the
// inputs that this file prints when it is run as a program.
import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import type { DType } from "../index.js";
import { edges } from "./cases/edges.js";
import { cases } from "./cases/index.js";
import { jobOf } from "./jobs.js";

/** One dtype a kind: NumPy's answer for the others is the same, rounded. */
const goldenDTypes: readonly DType[] = ["bool", "uint8", "int32", "float64", "complex128"];

/** JSON has neither infinities nor a sign of zero. */
const special = (x: number): number | string => (Object.is(x, -0) ? "-0.0" : Number.isFinite(x) ? x : String(x));

/** Cases that NumPy can judge, with a digest, so that a changed case is not compared with old numbers. */
export function goldenJobs() {
  return cases.flatMap((item) => {
    const { np } = item;
    if (np === undefined) return [];
    const dtypes = item.dtypes.filter((d) => goldenDTypes.includes(d));
    return (dtypes.length > 0 ? dtypes : [item.dtypes[0]]).map((dtype) => {
      const job = jobOf(item, dtype);
      const inputs = job.inputs.map((h) => ({ ...h, data: h.data.map(special) }));
      const digest = createHash("sha256")
        .update(JSON.stringify([np, inputs]))
        .digest("hex")
        .slice(0, 12);
      return { job, dump: { name: job.name, digest, np, inputs } };
    });
  });
}

/** The edge values, with the digest that ties them to their answers. */
export function edgeJobs() {
  return edges.map((edge) => {
    const inputs = edge.inputs.map((h) => ({ ...h, data: h.data.map(special) }));
    const digest = createHash("sha256")
      .update(JSON.stringify([edge.np, inputs]))
      .digest("hex")
      .slice(0, 12);
    return { edge, dump: { name: edge.name, digest, np: edge.np, inputs } };
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const jobs = process.argv[2] === "edges" ? edgeJobs() : goldenJobs();
  process.stdout.write(JSON.stringify(jobs.map(({ dump }) => dump)));
}
