// Reads the ledger of predictions, for the calibration plot.
import { lstatSync } from "node:fs";
import { plainText } from "@weft/formats/text";
import { type Ledger, ledgerScore, readLedger } from "@weft/lab/internal/ledger";
import { type LedgerView, RequestError } from "../wire/index.js";

const mostEntries = 1000;
const mostBytes = 64 << 20;

/** The ledger of a path; an empty one if there is none. */
export function viewLedger({ path }: { path: string }): LedgerView {
  const status = lstatSync(path, { throwIfNoEntry: false });
  if (status !== undefined && (!status.isFile() || status.size > mostBytes))
    throw new RequestError(422, `${path} is not a ledger: not a plain file of at most 64 MiB`);
  const ledger: Ledger = readLedger(path);
  const score = ledgerScore(ledger);
  const outcomes = new Map(ledger.outcomes.map((outcome) => [outcome.prediction, outcome]));
  return {
    path,
    entries: ledger.predictions.slice(-mostEntries).map((prediction) => {
      const outcome = outcomes.get(prediction.id);
      return {
        study: plainText(String(prediction.study).slice(0, 200)),
        what: plainText(prediction.finding ?? "extrapolation"),
        devices: prediction.devices,
        unit: plainText(String(prediction.unit)),
        predicted: prediction.to,
        interval: prediction.interval,
        measured: outcome?.value ?? null,
        inside: outcome?.inside ?? null,
      };
    }),
    scored: score.scored,
    withInterval: score.withInterval,
    hitRate: score.hitRate,
    medianError: score.medianError,
  };
}
