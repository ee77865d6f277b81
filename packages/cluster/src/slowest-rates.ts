// Combines the rates of several workers into those of the slowest: in a sharded program every worker waits for the
// slowest one, so each rate is the minimum over the workers and each latency the maximum.
import { type Link, linkOf, type RateCurve, type Rates, valueAt } from "@weft/core/internal/cost";
import { type CollectiveKind, collectiveKinds } from "@weft/core/internal/graph";

type DeviceRates = Omit<Rates, "links" | "crowded">;
type Table = NonNullable<NonNullable<Rates["products"]>["float32"]>;

/** The values of a property, if every item has it. */
function all<T, K extends keyof T>(items: readonly T[], key: K): NonNullable<T[K]>[] | null {
  const values = items.map((item) => item[key]);
  return values.every((value) => value !== undefined && value !== null) ? (values as NonNullable<T[K]>[]) : null;
}

function lowestCurve(curves: readonly RateCurve[]): RateCurve {
  const points = [...new Set(curves.flatMap((curve) => curve.map(([x]) => x)))].sort((a, b) => a - b);
  return points.map((x) => [x, Math.min(...curves.map((curve) => valueAt(curve, x)))]);
}

/** Combines the entries that every record has. */
function combine<V>(
  records: readonly Partial<Record<string, V>>[],
  join: (values: V[]) => V | undefined,
): Partial<Record<string, V>> {
  const entries = Object.keys(records[0]).flatMap((key): [string, V][] => {
    const values = all(records, key) as V[] | null;
    const joined = values === null ? undefined : join(values);
    return joined === undefined ? [] : [[key, joined]];
  });
  return Object.fromEntries(entries) as Partial<Record<string, V>>;
}

/** Tables of product times (in seconds) with equal sizes, element by element; tables of different sizes are left to the curves. */
function slowestTable(tables: readonly Table[]): Table | undefined {
  const [first] = tables;
  if (tables.some(({ sizes }) => sizes.join() !== first.sizes.join())) return undefined;
  const slowest = (layout: "nn" | "tn" | "nt" | "ns"): number[] =>
    first[layout].map((_, i) => Math.max(...tables.map((table) => table[layout][i])));
  return { ...first, nn: slowest("nn"), tn: slowest("tn"), nt: slowest("nt"), ns: slowest("ns") };
}

function slowestDevice(list: readonly DeviceRates[]): DeviceRates {
  const lowest = (key: "linalg" | "simple" | "special" | "lookup" | "random"): number =>
    Math.min(...list.map((rates) => rates[key]));
  const [rows, columns] = [all(list, "row"), all(list, "columns")];
  const [products, ops] = [all(list, "products"), all(list, "ops")];
  return {
    name: `the slowest of ${[...new Set(list.map(({ name }) => name))].join("; ")}`,
    assumed: list.some(({ assumed }) => assumed),
    ...(list.some(({ disturbed }) => disturbed) && { disturbed: true }),
    matmul: combine(all(list, "matmul")!, lowestCurve),
    linalg: lowest("linalg"),
    bandwidth: lowestCurve(list.map(({ bandwidth }) => bandwidth)),
    simple: lowest("simple"),
    special: lowest("special"),
    lookup: lowest("lookup"),
    random: lowest("random"),
    kernel: Math.max(...list.map(({ kernel }) => kernel)),
    call: Math.max(...list.map(({ call }) => call)),
    ...(products !== null && { products: combine(products, slowestTable) }),
    ...(ops !== null && { ops: combine(ops, (values: number[]) => Math.min(...values)) }),
    ...(rows !== null && { row: Math.max(...rows) }),
    ...(columns !== null && { columns: lowestCurve(columns) }),
  };
}

function slowestLinks(lists: readonly (readonly Link[])[]): Link[] {
  const counts = [...new Set(lists.flatMap((links) => links.map(({ members }) => members)))].sort((a, b) => a - b);
  return counts.map((members) => {
    const links = lists.flatMap((list) => linkOf(list, members) ?? []);
    const curves = all(links, "curve");
    return {
      members,
      latency: Math.max(...links.map(({ latency }) => latency)),
      bandwidth: Math.min(...links.map(({ bandwidth }) => bandwidth)),
      ...(curves !== null && { curve: lowestCurve(curves) }),
    };
  });
}

/** The rates of the slowest of several devices, property by property. */
export function slowestWorkerRates(list: readonly Rates[]): Rates {
  const distinct = [...new Map(list.map((rates) => [JSON.stringify(rates), rates])).values()];
  if (distinct.length === 1) return distinct[0];
  const crowds = distinct.flatMap(({ crowded }) => crowded?.members ?? []);
  const links = Object.fromEntries(
    collectiveKinds.map((kind) => [kind, slowestLinks(distinct.map((rates) => rates.links[kind]))]),
  ) as Record<CollectiveKind, Link[]>;
  return {
    ...slowestDevice(distinct),
    links,
    ...(crowds.length > 0 && {
      crowded: {
        members: Math.max(...crowds),
        rates: slowestDevice(distinct.map((rates) => rates.crowded?.rates ?? rates)),
      },
    }),
  };
}
