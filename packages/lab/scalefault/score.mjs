// Scores of ScaleFault: top-1 cause, false alarms, promised gains inside their intervals; what the rules of others say of the same
// measurements; the calibration of the intervals, cross-validated over the faults.

import { calibrateEffects, effectInterval } from "../dist/predict/index.js";

const share = (list, test) => (list.length === 0 ? null : list.filter(test).length / list.length);

/**
 * What the rules of PyTorch's TensorBoard plugin say of the measured shares: data loading above 5% and communication above 10% of
 * the step get advice. HTA has no thresholds: its breakdowns are tables of GPU kernels, and none ran here.
 */
export function tensorboardSays({ dataShare, commShare }) {
  const said = [];
  if (dataShare !== null && dataShare > 0.05) said.push("data loading");
  if (commShare !== null && commShare > 0.1) said.push("communication");
  return said;
}

/** Which faults each kind of advice of the plugin names. */
const adviceFor = {
  "data loading": ["slow-loader", "too-many-loaders", "loaders-recreated"],
  communication: ["forgotten-no-sync", "small-buckets", "slow-link", "sync-batch-norm"],
};

const inside = ([low, high], value) => low <= value && value <= high;

/** Coverage of the intervals when each fault is judged by quantiles from the other faults only. */
function crossValidated(promises) {
  const faults = [...new Set(promises.map((p) => p.fault))];
  const judged = faults.flatMap((fault) => {
    const calibration = calibrateEffects(
      promises.filter((p) => p.fault !== fault),
      { low: -1.282, high: 1.282, outcomes: 0 },
    );
    return promises
      .filter((p) => p.fault === fault)
      .map((p) => inside(effectInterval(p.from, p.to, p.noise, calibration), p.measured));
  });
  return { promises: judged.length, inside: share(judged, (x) => x) };
}

export function score(results) {
  const quiet = results.filter((r) => !r.disturbed);
  const faulty = results.filter((r) => r.fault !== null);
  const healthy = results.filter((r) => r.fault === null);
  const promises = results.flatMap((r) => (r.promise === null ? [] : [{ ...r.promise, fault: r.fault }]));
  const right = (r) => r.right === true;
  const advised = (r) => r.peers.tensorboard.some((a) => adviceFor[a].includes(r.fault));
  return {
    jobs: results.length,
    disturbed: results.length - quiet.length,
    faulty: faulty.length,
    topCause: share(faulty, right),
    topCauseUndisturbed: share(
      quiet.filter((r) => r.fault !== null),
      right,
    ),
    listed: share(faulty, (r) => r.listed),
    healthy: healthy.length,
    falseAlarms: share(healthy, (r) => r.alarm),
    falseAlarmsUndisturbed: share(
      quiet.filter((r) => r.fault === null),
      (r) => r.alarm,
    ),
    openQuestions: share(healthy, (r) => r.question),
    promises: promises.length,
    insideInterval: share(promises, (p) => inside(p.interval, p.measured)),
    crossValidated: crossValidated(promises),
    calibration: calibrateEffects(promises, { low: -1.282, high: 1.282, outcomes: 0 }),
    peers: {
      what: "the plugin's thresholds applied to the shares that the lab measured; HTA names no cause for jobs without GPU kernels",
      tensorboard: {
        namedFault: share(faulty, advised),
        falseAlarms: share(healthy, (r) => r.peers.tensorboard.length > 0),
      },
      hta: { namedFault: 0, falseAlarms: 0 },
    },
    byFault: Object.fromEntries(
      [...new Set(faulty.map((r) => r.fault))].map((fault) => {
        const own = faulty.filter((r) => r.fault === fault);
        return [fault, { jobs: own.length, topCause: share(own, right), listed: share(own, (r) => r.listed) }];
      }),
    ),
  };
}
