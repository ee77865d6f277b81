// Numbers with their error, as commands print them.

/**
 * A number with its estimated error, to the digits that the error leaves: 2.310e-4 +- 4e-7, or 0.991234 +- 2e-6.
 *
 * @param error - Absolute error; values below rounding are shown as 1e-16.
 */
export function withError(value: number, error: number): string {
  if (!Number.isFinite(value) || !Number.isFinite(error)) return `${value} +- ${error}`;
  const shown = Math.max(Math.abs(error), 1e-16).toExponential(0);
  const last = Number(shown.split("e")[1]);
  if (Math.abs(value) >= 0.1) return `${value.toFixed(Math.min(15, Math.max(0, -last)))} +- ${shown}`;
  const first = value === 0 ? last : Math.floor(Math.log10(Math.abs(value)));
  return `${value.toExponential(Math.min(15, Math.max(0, first - last)))} +- ${shown}`;
}
