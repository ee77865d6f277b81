// The cheapest choice of items that saves enough: a knapsack with up to a few ways to take each item, solved by branch and bound.
// The bound is the same problem with parts of ways allowed, which a sorted list answers.

/** A way to take an item: what it saves and costs, neither negative. */
export interface Way {
  saves: number;
  costs: number;
}

/** An item with its ways; at most one is taken. */
export interface CoverItem<W extends Way = Way> {
  ways: readonly W[];
}

/** A step along the lower hull of an item's ways: the next way instead of the one before. */
interface HullStep {
  item: number;
  saves: number;
  costs: number;
}

/** Most nodes of the search; what was found until then is returned. */
const maxNodes = 4_000;

/** Sums of the same numbers in another order. */
const isClose = (a: number, b: number): boolean => Math.abs(a - b) <= 1e-9 * Math.abs(a);

const isAlike = (a: CoverItem, b: CoverItem): boolean =>
  a.ways.length === b.ways.length &&
  a.ways.every(({ saves, costs }, i) => isClose(saves, b.ways[i].saves) && isClose(costs, b.ways[i].costs));

/** Ways that are on the lower hull of costs over savings, as steps from one to the next. */
function hullOf(item: number, ways: readonly Way[]): HullStep[] {
  const hull: Way[] = [{ saves: 0, costs: 0 }];
  const slope = (a: Way, b: Way): number => (b.costs - a.costs) / (b.saves - a.saves);
  for (const way of [...ways].sort((a, b) => a.saves - b.saves || a.costs - b.costs)) {
    if (way.saves <= hull[hull.length - 1].saves) continue;
    while (hull.length > 1 && slope(hull[hull.length - 2], hull[hull.length - 1]) >= slope(hull[hull.length - 1], way))
      hull.pop();
    hull.push(way);
  }
  return hull.slice(1).map((way, i) => ({ item, saves: way.saves - hull[i].saves, costs: way.costs - hull[i].costs }));
}

/**
 * The ways to take that save at least `need` at the least cost, one per item and null for items that are not taken; null if all
 * together save too little, or none costs less than `below`. The cost is at most `tolerance` above the least one, unless the search was
 * cut off.
 */
export function cheapestCover<W extends Way>(
  items: readonly CoverItem<W>[],
  need: number,
  tolerance: number,
  below = Number.POSITIVE_INFINITY,
): { costs: number; chosen: (W | null)[] } | null {
  const rounding = 1e-9 * Math.abs(need);
  const steps = items.flatMap(({ ways }, i) => hullOf(i, ways));
  steps.sort((a, b) => a.costs / a.saves - b.costs / b.saves);
  // Items in the order in which their first step comes: those that matter are decided first.
  const order = [...new Set(steps.map(({ item }) => item))];
  const place = new Int32Array(items.length).fill(items.length);
  order.forEach((item, k) => {
    place[item] = k;
  });
  /** Least cost of saving `left` with the items from position `k` on, where parts count. */
  const bound = (k: number, left: number): number => {
    let [rest, costs] = [left, 0];
    for (const step of steps) {
      if (rest <= 0) break;
      if (place[step.item] < k) continue;
      const part = Math.min(1, rest / step.saves);
      costs += part * step.costs;
      rest -= step.saves;
    }
    return rest > rounding ? Number.POSITIVE_INFINITY : costs;
  };
  let best: { costs: number; chosen: (W | null)[] } | null = null;
  const taken: (W | null)[] = items.map(() => null);
  /** Takes whole steps until enough is saved, then drops what is not needed after all. Returns what was taken before that. */
  const round = (k: number, left: number, spent: number): (W | null)[] => {
    const chosen = [...taken];
    let [rest, costs] = [left, spent];
    for (const step of steps) {
      if (rest <= 0) break;
      if (place[step.item] < k) continue;
      const { ways } = items[step.item];
      const before = chosen[step.item] ?? { saves: 0, costs: 0 };
      const next = ways.find(({ saves }) => Math.abs(saves - before.saves - step.saves) <= 1e-9 * saves);
      if (next === undefined) continue;
      chosen[step.item] = next;
      rest -= next.saves - before.saves;
      costs += next.costs - before.costs;
    }
    const whole = [...chosen];
    if (rest > rounding) return whole;
    for (const item of [...order].sort((a, b) => (chosen[b]?.costs ?? 0) - (chosen[a]?.costs ?? 0))) {
      const own = chosen[item];
      if (place[item] < k || own === null || own.costs <= 0) continue;
      const other = [...items[item].ways, null]
        .filter((way) => (way?.costs ?? 0) < own.costs && rest + own.saves - (way?.saves ?? 0) <= rounding)
        .reduce<W | null | undefined>(
          (a, b) => (a === undefined || (b?.costs ?? 0) < (a?.costs ?? 0) ? b : a),
          undefined,
        );
      if (other === undefined) continue;
      rest += own.saves - (other?.saves ?? 0);
      costs -= own.costs - (other?.costs ?? 0);
      chosen[item] = other;
    }
    if (costs < (best?.costs ?? below)) best = { costs, chosen };
    return whole;
  };
  // Of items that are alike (layers), the later ones save no more than the earlier ones: other choices are the same ones in other order.
  const likeBefore = order.map((item, k) => k > 0 && isAlike(items[item], items[order[k - 1]]));
  let nodes = 0;
  /** `rounded` is what rounding gives before this node; it gives the same where the node takes that. */
  const visit = (k: number, left: number, spent: number, rounded: (W | null)[] | null): void => {
    const least = spent + bound(k, left);
    const isHopeless = (): boolean => least >= (best?.costs ?? below) - tolerance;
    if (least === Number.POSITIVE_INFINITY || isHopeless() || nodes++ >= maxNodes) return;
    const isSame = k > 0 && rounded?.[order[k - 1]] === taken[order[k - 1]];
    const next = isSame ? rounded : round(k, left, spent);
    if (isHopeless() || k === order.length) return;
    const item = order[k];
    const most = likeBefore[k] ? (taken[order[k - 1]]?.saves ?? 0) : Number.POSITIVE_INFINITY;
    for (const way of [...[...items[item].ways].sort((a, b) => b.saves - a.saves), null]) {
      if ((way?.saves ?? 0) > most) continue;
      taken[item] = way;
      visit(k + 1, left - (way?.saves ?? 0), spent + (way?.costs ?? 0), next);
    }
    taken[item] = null;
  };
  visit(0, need, 0, null);
  return best;
}
