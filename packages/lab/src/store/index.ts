// Exports of the store.
export { query, writeTables } from "./duckdb.js";
export { studyTables, type Table, tableColumns } from "./tables.js";
