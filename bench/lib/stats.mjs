// Medians and quartiles of samples.
export function quantile(samples, share) {
  const sorted = [...samples].sort((a, b) => a - b);
  const at = share * (sorted.length - 1);
  const below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - below);
}
export const median = (samples) => quantile(samples, 0.5);
export const summary = (samples) => ({
  median: median(samples),
  lower: quantile(samples, 0.25),
  upper: quantile(samples, 0.75),
  min: Math.min(...samples),
  max: Math.max(...samples),
  count: samples.length,
});
