// The public face of the ledger.
export {
  type Ledger,
  type LedgerOutcome,
  type LedgerPrediction,
  type LedgerScore,
  ledgerScore,
  promisesOf,
  readLedger,
  recordPromises,
  scoreLedger,
} from "./ledger.js";
