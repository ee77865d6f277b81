// Drives and rates that are functions of time, evaluated on the host: their graph is traced once and interpreted, without a compiler.
import { functionOrder, type Node, WeftError } from "@weft/core/internal/graph";
import { build, evaluate, referenceRules, type Value } from "@weft/core/internal/ops";
import { tracing } from "@weft/core/internal/runtime";
import { Tensor } from "@weft/core/internal/tensor";
import { closeOver, simplify } from "@weft/core/internal/transform";
import type { CheckedJump, Hamiltonian } from "./problem.js";

/** Values at some times, one row per time: drives, then rates that depend on time. */
export type HostInputs = (times: readonly number[]) => Float64Array[];

/** A function of times [m] as a program on the host; the times of every call have the same number. */
function hostFunction(fn: (t: Tensor) => Tensor, count: number): (times: Float64Array) => Value {
  const times = build.input([count], "float64");
  const [output] = tracing(() => [fn(new Tensor(times)).cast("float64").node]);
  const { fn: closed, captured } = closeOver([output], [times]);
  const constants = captured.map((node): Value => {
    const x = new Tensor(node);
    return { shape: x.shape, dtype: x.dtype, data: x.rawSync() };
  });
  const simple = simplify(closed);
  const order = functionOrder(simple).filter((node) => !simple.params.includes(node));
  const isPlain = order.every((node) => node.op in referenceRules && node.outputs === null);
  if (!isPlain) return (data) => evaluate(simple, [...constants, { shape: [count], dtype: "float64", data }])[0];
  // The order and the places of operands are the same in every call, which happens once per step.
  const places = new Map([...simple.params, ...order].map((node, k) => [node, k]));
  const steps = order.map((node) => ({
    node,
    rule: referenceRules[node.op as keyof typeof referenceRules] as (inputs: Value[], node: Node) => Value,
    from: node.inputs.map((input) => places.get(input)!),
  }));
  const result = places.get(simple.outputs[0])!;
  return (data) => {
    const values: Value[] = [...constants, { shape: [count], dtype: "float64", data }];
    for (const { node, rule, from } of steps) {
      values.push(
        rule(
          from.map((k) => values[k]),
          node,
        ),
      );
    }
    return values[result];
  };
}

/** The inputs of a problem as a function of times, or null if nothing depends on time. */
export function hostInputs({ amplitudes }: Hamiltonian, jumps: readonly CheckedJump[]): HostInputs | null {
  const rates = jumps.flatMap(({ rate }) => (typeof rate === "function" ? [rate] : []));
  const functions = typeof amplitudes === "function" ? [amplitudes, ...rates] : rates;
  if (functions.length === 0) return null;
  const made = new Map<number, ((times: Float64Array) => Value)[]>();
  return (times) => {
    const m = times.length;
    if (!made.has(m))
      made.set(
        m,
        functions.map((fn) => hostFunction(fn, m)),
      );
    const given = Float64Array.from(times);
    const columns = made.get(m)!.map((fn) => fn(given));
    const widths = columns.map(({ data }) => data.length / m);
    const row = new Float64Array(widths.reduce((a, b) => a + b, 0));
    const rows = times.map((_, i) => {
      const out = row.slice();
      let at = 0;
      columns.forEach(({ data }, k) => {
        for (let x = 0; x < widths[k]; x++) out[at++] = Number(data[i * widths[k] + x]);
      });
      return out;
    });
    const bad = rows.findIndex((values) => values.some((x) => !Number.isFinite(x)));
    if (bad >= 0)
      throw new WeftError(
        `evolve: a coefficient or a rate at time ${times[bad]} is not a finite number, or a rate is negative: ${rows[bad].join(", ")}`,
      );
    return rows;
  };
}
