// Output of NCCL's RAS client (ncclras): ranks that are missing, dead, or behind in their collectives.
import { type HangEvidence, isRank, rankEvidence } from "./evidence.js";

export function looksLikeRas(text: string): boolean {
  return /^Job summary\s*$/m.test(text) && /^(?:Communicators|Errors|Warnings)/m.test(text);
}

const rankLine = /^\s*Ranks?\s+(\d{1,7})\s+--\s+(.*)$/;
const launched = /(\d+) ranks? ha(?:s|ve) launched up to operation (\d{1,15})/;

/** Takes a RAS report into the evidence. Sections name a condition first and list ranks below it. */
export function readRas(text: string, file: string, evidence: HangEvidence): void {
  let condition = "";
  let operation: number | null = null;
  let most = -1;
  for (const line of text.split("\n")) {
    const total = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$/.exec(line);
    if (total !== null && evidence.worldSize === null && isRank(Number(total[5]) - 1))
      evidence.worldSize = Number(total[5]);
    const heading = /\b(INCOMPLETE|DEAD|MISMATCH|NOCOMM|ABORT|TIMEOUT)\b/.exec(line);
    if (heading !== null) {
      condition = heading[1];
      operation = null;
    }
    const count = launched.exec(line);
    if (count !== null) {
      operation = Number(count[2]);
      most = Math.max(most, operation);
    }
    const rank = rankLine.exec(line);
    if (rank === null || !isRank(Number(rank[1]))) continue;
    const own = rankEvidence(evidence, Number(rank[1]));
    if (!own.files.includes(file)) own.files.push(file);
    if (operation !== null) own.status.push({ group: "0", enqueued: operation, completed: operation });
    else if (condition === "DEAD" || condition === "INCOMPLETE")
      own.process ??= {
        state: "dead",
        detail: `NCCL RAS cannot reach it (${condition.toLowerCase()}): ${rank[2].trim().slice(0, 200)}`,
      };
  }
  // RAS lists only the smaller sets: everybody else has launched the most.
  if (most >= 0 && evidence.worldSize !== null)
    for (let rank = 0; rank < evidence.worldSize; rank++) {
      const own = rankEvidence(evidence, rank);
      if (own.status.length === 0 && own.process === undefined) {
        own.files.push(file);
        own.status.push({ group: "0", enqueued: most, completed: most });
      }
    }
}
