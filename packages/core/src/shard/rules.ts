// What a user asks of sharding: wishes in the program (pin nodes) and rules for named parts of it (from YAML or JSON),
// nested, with rules of their own for gradients. Turns both into strategies for a mesh; all of it can be ignored.
import { functionOrder, type GraphFn, isOp, type Node, WeftError } from "../graph/index.js";
import { factorsOf } from "../ops/index.js";
import type { Strategy } from "./layout.js";
import type { Mesh } from "./mesh.js";

/** Results of a part of the program are cut along `axis` (from the end if negative) by a mesh axis; null: whole. */
export interface ShardRule {
  axis: number | null;
  /** The mesh axis; the first one where it is left out. */
  mesh?: string;
  /** Use at most this many devices for the function. */
  devices?: number;
}

export interface ScopeRule {
  shard?: ShardRule;
  /** For the gradient of the part; the same rule where it is left out. */
  backward?: ShardRule;
}

/** Rules by the full name of a part, "encoder.0"; a part without one has that of the part around it. */
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

/** Reads `{ scopes: { encoder: { shard: { axis: 0 }, backward: ..., scopes: { "0": ... } } } }`, checked. */
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

/** The rule of a node by its part, or by the nearest part around it that has one. */
export function ruleOf(node: Node, rules: ShardRules): ShardRule | null {
  if (node.scope === null) return null;
  const { backward } = node.scope;
  for (let name = node.scope.name; name !== ""; name = name.slice(0, Math.max(0, name.lastIndexOf(".")))) {
    const rule = rules.get(name);
    const found = backward ? (rule?.backward ?? rule?.shard) : rule?.shard;
    if (found !== undefined) return found;
  }
  return null;
}

export interface ShardingConstraints {
  /** Mesh axes that wishes and rules name, in the order in which they first come. */
  axes: string[];
  /** The fewest devices that they ask for. */
  devices: number;
  /** Something shall be cut: then one device is no alternative. */
  any: boolean;
  /** There are wishes or rules at all; that a value be whole is one, and leaves it open whether anything is cut. */
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

/** Wishes and rules as strategies on a mesh; null where the user left it open. */
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
    // A part of the program has values without that dimension: those are left to the planner.
    if (map === undefined || map === null || factors[map.factor].size < 2 || !known(name)) return null;
    return { split: { [name]: map.factor }, carry: [] };
  };
}
