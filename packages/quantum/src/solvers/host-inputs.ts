// Drives and rates that are functions of time, evaluated on the host: their graph is traced and interpreted, without a compiler.
import { functionOrder, type GraphFn, type Node, WeftError } from "@weft/core/internal/graph";
import { build, evaluate, referenceRules, type Value } from "@weft/core/internal/ops";
import { tracing } from "@weft/core/internal/runtime";
import { Tensor } from "@weft/core/internal/tensor";
import { closeOver, simplify } from "@weft/core/internal/transform";
import { type HostProgram, hostProgram } from "./host-program.js";
import type { CheckedJump, Hamiltonian } from "./problem.js";

/** Values at some times, one array per input: drives, then rates that depend on time. The arrays are valid until the next call. */
export type HostInputs = (times: Float64Array) => Float64Array[];

/** The graph of a function of this number of times, and the values of the tensors that it closes over. */
function traced(fn: (t: Tensor) => Tensor, count: number): { graph: GraphFn; constants: Value[] } {
  const times = build.input([count], "float64");
  const [output] = tracing(() => [fn(new Tensor(times)).cast("float64").node]);
  const { fn: closed, captured } = closeOver([output], [times]);
  const constants = captured.map((node): Value => {
    const x = new Tensor(node);
    return { shape: x.shape, dtype: x.dtype, data: x.rawSync() };
  });
  return { graph: simplify(closed), constants };
}

/** A graph by the reference rules of its ops. Their order and the places of operands are the same in every call. */
function interpreted({ graph, constants }: ReturnType<typeof traced>): (times: Value) => Value {
  const order = functionOrder(graph).filter((node) => !graph.params.includes(node));
  const isPlain = order.every((node) => node.op in referenceRules && node.outputs === null);
  if (!isPlain) return (times) => evaluate(graph, [...constants, times])[0];
  const places = new Map([...graph.params, ...order].map((node, k) => [node, k]));
  const steps = order.map((node) => ({
    node,
    rule: referenceRules[node.op as keyof typeof referenceRules] as (inputs: Value[], node: Node) => Value,
    from: node.inputs.map((input) => places.get(input)!),
  }));
  const result = places.get(graph.outputs[0])!;
  return (times) => {
    const values = [...constants, times];
    for (const { node, rule, from } of steps) {
      const inputs = from.map((k) => values[k]);
      values.push(rule(inputs, node));
    }
    return values[result];
  };
}

/** A function from times [m] to values [m] or [m, n] as a program on the host. */
export function hostFunction(fn: (t: Tensor) => Tensor): HostProgram {
  const one = traced(fn, 1);
  const program = hostProgram(one.graph, one.constants);
  if (program !== null) return program;
  const made = new Map([[1, interpreted(one)]]);
  return (data) => {
    const m = data.length;
    const run = made.get(m) ?? made.set(m, interpreted(traced(fn, m))).get(m)!;
    const value = run({ shape: [m], dtype: "float64", data });
    const width = value.data.length / m;
    return Array.from({ length: width }, (_, k) =>
      Float64Array.from({ length: m }, (_, i) => Number(value.data[i * width + k])),
    );
  };
}

/** The inputs of a problem as a function of times, or null if nothing depends on time. */
export function hostInputs({ amplitudes }: Hamiltonian, jumps: readonly CheckedJump[]): HostInputs | null {
  const rates = jumps.flatMap(({ rate }) => (typeof rate === "function" ? [rate] : []));
  const functions = (typeof amplitudes === "function" ? [amplitudes, ...rates] : rates).map(hostFunction);
  if (functions.length === 0) return null;
  return (times) => {
    const columns = functions.flatMap((fn) => fn(times));
    for (let i = 0; i < times.length; i++)
      for (const column of columns)
        if (!Number.isFinite(column[i]))
          throw new WeftError(
            `evolve: a coefficient or a rate at time ${times[i]} is not a finite number, or a rate is negative: ${columns.map((x) => x[i]).join(", ")}`,
          );
    return columns;
  };
}
