// Compares partitioned functions with whole ones in one process, for the sharding suites.
import type { GraphFn } from "../graph/index.js";
import { evaluate, type Value, verify } from "../ops/index.js";
import { gatherValue, type Lockstep, type Partitioned, runLockstep, scatterValue } from "../shard/index.js";
import { difference, type Result, toleranceOf } from "./compare.js";
import { results } from "./traced.js";

export interface Sharded {
  results: Result[];
  traffic: Lockstep["traffic"];
  /** Bytes that all devices together received from others. */
  bytes: number;
}

/** Runs the functions of all devices on whole arguments and assembles their results. */
export function runSharded(fn: GraphFn, args: readonly Value[], parts: Partitioned): Sharded {
  parts.functions.forEach(verify);
  const perParam = args.map((value, i) => scatterValue(value, parts.params[i]));
  const run = runLockstep(
    parts.functions,
    parts.mesh.ranks.map((_, r) => perParam.map((list) => list[r])),
    parts.mesh.ranks,
  );
  const whole = fn.outputs.map((output, i) =>
    gatherValue(
      run.results.map((list) => list[i]),
      parts.results[i],
      output.shape,
    ),
  );
  return { results: results(whole), traffic: run.traffic, bytes: run.traffic.reduce((n, { bytes }) => n + bytes, 0) };
}

/** Describes the differences between a partitioned function and the whole one. */
export function shardedProblems(
  name: string,
  fn: GraphFn,
  args: readonly Value[],
  parts: Partitioned,
  loose = 1,
): { problems: string[]; run: Sharded } {
  const expected = results(evaluate(fn, args));
  const run = runSharded(fn, args, parts);
  const problems = run.results.flatMap((result, i) => {
    const problem = difference(result, expected[i], { rtol: 4 * loose * toleranceOf(result.dtype) });
    return problem === null ? [] : [`${name}, result ${i} ${parts.results[i]}: ${problem}`];
  });
  return { problems, run };
}
