// Cost and energy of predictions of weft predict: --price and --watts.
import { shortNumber } from "@weft/formats/text";
import { CommandError, wrongUsage } from "../terminal/index.js";

/** A positive number of an option, or undefined. */
export function positiveNumber(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text.replace(/\/h$/, ""));
  if (!(Number.isFinite(value) && value > 0))
    throw new CommandError(`--${name} ${text} is not a positive number`, wrongUsage);
  return value;
}

/** Cost and energy of a prediction. */
export interface Cost {
  devices: number;
  /** Per million units of work (throughput), or of the work itself (seconds). */
  price?: number;
  kilowattHours?: number;
}

/** Cost and energy: of a million samples where throughput was predicted, of the whole work where seconds were. */
export function costsOf(
  result: { metric: string; predictions: readonly { devices: number; value: number | null }[] },
  price: number | undefined,
  watts: number | undefined,
): Cost[] {
  if (price === undefined && watts === undefined) return [];
  return result.predictions.flatMap((p): Cost[] => {
    if (p.value === null) return [];
    const deviceHours = (p.devices * (result.metric === "seconds" ? p.value : 1e6 / p.value)) / 3600;
    return [
      {
        devices: p.devices,
        ...(price !== undefined && { price: deviceHours * price }),
        ...(watts !== undefined && { kilowattHours: (deviceHours * watts) / 1000 }),
      },
    ];
  });
}

/** Cost and energy as text. */
export function costText(costs: readonly Cost[], metric: string): string {
  const per = metric === "seconds" ? "for this work" : "per million samples";
  const lines = costs.map((c) => {
    const money = c.price === undefined ? "" : `  cost ${shortNumber(c.price)}`;
    return `  ${c.devices}:${money}${c.kilowattHours === undefined ? "" : `  energy ${shortNumber(c.kilowattHours)} kWh`}`;
  });
  return `Cost and energy (derived from the predictions, ${per}; price and power are assumed as given):\n${lines.join("\n")}`;
}
