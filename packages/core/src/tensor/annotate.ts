// Sharding annotations: constraints on tensors, and names for parts of the program that sharding rules can match. They have no
// effect on a single device. WEFT_IGNORE_ANNOTATIONS=1 ignores them.
import { checkOptions, currentNodeScope, inScope, showValue, WeftError } from "../graph/index.js";
import { make } from "../ops/index.js";
import { settings } from "../settings/index.js";
import { checkArguments, nodeOf, wrap } from "./convert.js";
import type { Tensor } from "./tensor.js";

/** Mesh axes per dimension, counted from the end if negative: `{ 0: "batch", 1: ["model"] }`. */
export type ShardSpec = Readonly<Record<number, string | readonly string[]>>;

const ignored = (): boolean => settings.ignoreAnnotations.get();

function byDimension(op: string, spec: ShardSpec, rank: number): string[][] {
  if (typeof spec !== "object" || spec === null)
    throw new WeftError(`${op}: mesh axes by dimension are an object such as { 0: "batch" }, got ${String(spec)}`);
  const dims = Array.from({ length: rank }, (): string[] => []);
  for (const [key, axes] of Object.entries(spec)) {
    const dim = Number(key) < 0 ? rank + Number(key) : Number(key);
    if (!(dim in dims)) throw new WeftError(`${op}: there is no dimension ${key} in a tensor of ${rank} dimensions`);
    const list: unknown[] = Array.isArray(axes) ? axes : [axes];
    if (!list.every((axis) => typeof axis === "string"))
      throw new WeftError(`${op}: dimension ${key} is cut by the name of a mesh axis or several, got ${String(axes)}`);
    dims[dim] = list;
  }
  const all = dims.flat();
  if (new Set(all).size !== all.length)
    throw new WeftError(`${op}: a mesh axis cuts one dimension, and ${showValue(spec)} names one twice`);
  return dims;
}

/**
 * Adds a sharding constraint to a tensor: split the listed dimensions over the listed mesh axes, and replicate the others.
 * Gradients get the same constraint, or the one in `backward`. On a single device the constraint has no effect.
 */
export function shard(x: Tensor, spec: ShardSpec, options: { backward?: ShardSpec } = {}): Tensor {
  checkOptions("shard", options, ["backward"]);
  const node = nodeOf("shard", x);
  const rank = node.shape.length;
  const dims = byDimension("shard", spec, rank);
  const backward = options.backward === undefined ? dims : byDimension("shard, backward", options.backward, rank);
  return ignored() ? x : wrap(make("pin", [node], { dims, backward }));
}

/**
 * Runs a function and assigns the operations that it builds to a named part of the program. Names nest: "encoder.0".
 */
export function named<T>(name: string, body: () => T): T {
  if (typeof name !== "string" || !/^[\w-]+(\.[\w-]+)*$/.test(name))
    throw new WeftError(
      `named: a name has letters, digits, "_" and "-", and dots between parts, got ${showValue(name)}`,
    );
  checkArguments("named", "function", { body });
  if (ignored()) return body();
  const around = currentNodeScope();
  return inScope({ name: around === null ? name : `${around.name}.${name}`, backward: false }, body);
}
