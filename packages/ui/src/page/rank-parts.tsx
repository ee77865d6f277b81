// Where the time of a step goes: stacked parts per rank, and over the steps of the first rank.
import { useMemo } from "preact/hooks";
import type { RankPartTimes as Parts, SeriesPart } from "../wire/index.js";
import { Chart, type ChartCurve } from "./chart.js";
import { formatMicroseconds, formatShare } from "./text.js";

const kinds = [
  ["computeUs", "compute", "c1"],
  ["dataWaitUs", "data wait", "c2"],
  ["exposedCommUs", "exposed communication", "c4"],
] as const;

const total = (rank: Parts): number => rank.computeUs + rank.dataWaitUs + rank.exposedCommUs;

/** The parts of a step. */
export function RankParts({
  ranks,
  part,
  x,
  axis,
}: {
  ranks: Parts[];
  part: SeriesPart;
  x: (number | null)[];
  axis: "step" | "time";
}) {
  const curves = useMemo(() => stacked(part), [part]);
  if (ranks.length === 0) return null;
  const longest = Math.max(...ranks.map(total), 1e-9);
  return (
    <section class="card">
      <h2>Where a step goes</h2>
      <ul class="legend">
        {kinds.map(([, name, color]) => (
          <li key={name}>
            <i class={`swatch ${color}`} aria-hidden="true" /> {name}
          </li>
        ))}
      </ul>
      <div class="grid two">
        <table class="rank-parts">
          <caption>Mean of the last {Math.max(...ranks.map((rank) => rank.steps))} steps, per rank</caption>
          <tbody>
            {ranks.map((rank) => (
              <tr key={rank.rank}>
                <th scope="row">rank {rank.rank}</th>
                <td>
                  <span
                    class="stack"
                    role="img"
                    aria-label={kinds
                      .map(([key, name]) => `${name} ${formatShare(rank[key] / total(rank), 1)}`)
                      .join(", ")}
                  >
                    {kinds.map(([key, name, color]) => (
                      <span
                        key={name}
                        class={color}
                        style={{ width: `${(100 * rank[key]) / longest}%` }}
                        title={`${name}: ${formatMicroseconds(rank[key])}`}
                      />
                    ))}
                  </span>
                </td>
                <td class="number">{formatMicroseconds(total(rank))}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <Chart
          title="Parts of a step, first rank"
          x={x}
          axis={axis}
          sync="run"
          curves={curves}
          height={170}
          format={formatMicroseconds}
        />
      </div>
    </section>
  );
}

/** Cumulative curves: each part is drawn on top of those before it. */
function stacked(part: SeriesPart): ChartCurve[] {
  const sums = new Array<number>(part.step.length).fill(0);
  const curves = kinds.flatMap(([field, label, color]): ChartCurve[] => {
    const values = part.values[field]?.mean;
    if (values === undefined) return [];
    values.forEach((value, i) => {
      sums[i] += value ?? 0;
    });
    return [{ label, color, mean: [...sums], fill: true }];
  });
  // The tallest is drawn first, so that the others stay visible.
  return curves.reverse();
}
