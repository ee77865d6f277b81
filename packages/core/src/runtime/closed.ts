// Refuses values that exist only while a function is traced.
import { type Node, topological, WeftError } from "../graph/index.js";

/** Throws where results depend on placeholders other than the parameters. */
export function assertClosed(results: readonly Node[], params: readonly Node[] = []): void {
  const known = new Set(params);
  for (const node of topological(results, (n) => known.has(n) || n.value !== null)) {
    if (node.op === "input" && !known.has(node))
      throw new WeftError(
        "a tensor that exists only inside a traced function (vmap, jit, scan) has no value: it was read inside the " +
          "function, or stored and used outside; return it from the function, or show it with weft.debug.print",
      );
  }
}
