// Sharding constraints of the user: annotations in the program (pin nodes) and rules for named scopes (from YAML or JSON),
// nested, with separate rules for gradients. Translates both into strategies for a mesh.
import { functionOrder, type GraphFn, isOp, type Node, WeftError } from "../graph/index.js";
import { factorsOf } from "../ops/index.js";
import type { Strategy } from "./layout.js";
import type { Mesh } from "./mesh.js";

/** Results of a scope are split along `axis` (from the end if negative) by a mesh axis; null: replicated. */
interface ShardRule {
  axis: number | null;
  /** The mesh axis. Default: the first one. */
  mesh?: string;
  /** Maximum number of devices for the function. */
  devices?: number;
}

interface ScopeRule {
  shard?: ShardRule;
  /** Rule for the gradient of the scope. Default: the same rule. */
  backward?: ShardRule;
}

/** Rules by the full name of a scope, "encoder.0"; a scope without a rule inherits that of its parent. */
export type ShardRules = ReadonlyMap<string, ScopeRule>;

const isObject = (x: unknown): x is Record<string, unknown> => typeof x === "object" && x !== null && !Array.isArray(x);

function parseRule(where: string, given: unknown): ShardRule {
  if (!isObject(given)) throw new WeftError(`${where}: give { axis, mesh?, devices? }, got ${JSON.stringify(given)}`);
  const unknown = Object.keys(given).filter((key) => !["axis", "mesh", "devices"].includes(key));
  if (unknown.length > 0) throw new WeftError(`${where}: "${unknown[0]}" is not one of axis, mesh, devices`);
  const { axis, mesh, devices } = given as unknown as ShardRule;
  if (axis !== null && !Number.isSafeInteger(axis))
    throw new WeftError(`${where}.axis: a whole number (a dimension) or null (whole), got ${JSON.stringify(axis)}`);
  if (mesh !== undefined && typeof mesh !== "string") throw new WeftError(`${where}.mesh: the name of a mesh axis`);
  if (devices !== undefined && !(Number.isSafeInteger(devices) && devices > 0))
    throw new WeftError(`${where}.devices: a whole number > 0, got ${JSON.stringify(devices)}`);
  return { axis, ...(mesh === undefined ? {} : { mesh }), ...(devices === undefined ? {} : { devices }) };
}

/** Parses and checks `{ scopes: { encoder: { shard: { axis: 0 }, backward: ..., scopes: { "0": ... } } } }`. */
export function parseRules(config: unknown): ShardRules {
  const rules = new Map<string, ScopeRule>();
  const visit = (scopes: unknown, prefix: string): void => {
    if (!isObject(scopes)) throw new WeftError(`${prefix === "" ? "scopes" : prefix}: give names with their rules`);
    for (const [name, given] of Object.entries(scopes)) {
      const full = prefix === "" ? name : `${prefix}.${name}`;
      if (!isObject(given)) throw new WeftError(`scope ${full}: give { shard, backward, scopes }`);
      const unknown = Object.keys(given).filter((key) => !["shard", "backward", "scopes"].includes(key));
      if (unknown.length > 0)
        throw new WeftError(`scope ${full}: "${unknown[0]}" is not one of shard, backward, scopes`);
      rules.set(full, {
        ...(given.shard === undefined ? {} : { shard: parseRule(`scope ${full}.shard`, given.shard) }),
        ...(given.backward === undefined ? {} : { backward: parseRule(`scope ${full}.backward`, given.backward) }),
      });
      if (given.scopes !== undefined) visit(given.scopes, full);
    }
  };
  if (!isObject(config) || config.scopes === undefined)
    throw new WeftError(`sharding rules: give { scopes: { name: { shard: { axis: 0 } } } }`);
  visit(config.scopes, "");
  return rules;
}

/** The rule of a node's scope, or of the nearest enclosing scope that has one. */
function ruleOf(node: Node, rules: ShardRules): ShardRule | null {
  if (node.scope === null) return null;
  const { backward } = node.scope;
  for (let name = node.scope.name; name !== ""; name = name.slice(0, Math.max(0, name.lastIndexOf(".")))) {
    const rule = rules.get(name);
    const found = backward ? (rule?.backward ?? rule?.shard) : rule?.shard;
    if (found !== undefined) return found;
  }
  return null;
}

interface ShardingConstraints {
  /** Mesh axes that annotations and rules name, in order of appearance. */
  axes: string[];
  /** The smallest device limit of all rules. */
  devices: number;
  /** Something must be split: then one device is no alternative. */
  any: boolean;
  /** There is any constraint; "replicated" is one that does not require a split. */
  pinned: boolean;
}

export function shardingConstraints(fn: GraphFn, rules: ShardRules): ShardingConstraints {
  const axes = new Set<string>();
  let devices = Number.POSITIVE_INFINITY;
  let any = false;
  let pinned = false;
  for (const node of functionOrder(fn)) {
    if (isOp(node, "pin")) {
      pinned = true;
      for (const axis of node.attrs.dims.flat()) axes.add(axis);
      any ||= [...node.attrs.dims, ...node.attrs.backward].flat().length > 0;
    }
    const rule = ruleOf(node, rules);
    if (rule === null) continue;
    any = true;
    if (rule.mesh !== undefined) axes.add(rule.mesh);
    devices = Math.min(devices, rule.devices ?? Number.POSITIVE_INFINITY);
  }
  return { axes: [...axes], devices, any, pinned: pinned || any };
}

/** Constraints as strategies on a mesh; null where the planner may choose. */
export function constrainedStrategies(mesh: Mesh, rules: ShardRules): (node: Node) => Strategy | null {
  const known = (axis: string): boolean => mesh.axes.some(({ name }) => name === axis);
  return (node) => {
    if (isOp(node, "pin")) {
      const split: Record<string, number> = {};
      node.attrs.dims.forEach((axes, dim) => {
        for (const axis of axes) if (known(axis)) split[axis] = dim;
      });
      return { split, carry: [] };
    }
    const rule = ruleOf(node, rules);
    if (rule === null || node.op === "const") return null;
    if (rule.axis === null) return { split: {}, carry: [] };
    const { factors, outputs } = factorsOf(node);
    const axis = rule.axis < 0 ? node.shape.length + rule.axis : rule.axis;
    const map = outputs[0][axis];
    const name = rule.mesh ?? mesh.axes[0].name;
    // Values of the scope without that dimension are left to the planner.
    if (map === undefined || map === null || factors[map.factor].size < 2 || !known(name)) return null;
    return { split: { [name]: map.factor }, carry: [] };
  };
}
