// Exports of the atlas: public results as tables, and their audit.
export { type AuditFinding, auditSubmissions } from "./audit.js";
export { readSubmissions } from "./submissions.js";
export { submissionTables, vtrainTables } from "./tables.js";
