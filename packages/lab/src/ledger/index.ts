// Exports of the ledger.
export {
  type Ledger,
  type LedgerPrediction,
  ledgerScore,
  makePrediction,
  predictionsOf,
  readLedger,
  recordPredictions,
  scoreLedger,
  scorePrediction,
} from "./ledger.js";
