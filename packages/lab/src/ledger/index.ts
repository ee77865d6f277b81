// The public face of the ledger.
export {
  type Ledger,
  type LedgerOutcome,
  type LedgerPrediction,
  type LedgerScore,
  ledgerScore,
  makePrediction,
  promisesOf,
  readLedger,
  recordPromises,
  scoreLedger,
  settlePrediction,
} from "./ledger.js";
