// Exports of the ledger.
export {
  type Ledger,
  type LedgerOutcome,
  type LedgerPrediction,
  type LedgerScore,
  ledgerScore,
  makePrediction,
  predictionsOf,
  readLedger,
  recordPredictions,
  scoreLedger,
  scorePrediction,
} from "./ledger.js";
