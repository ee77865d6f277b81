// Exports of the store.
export { query, writeTables } from "./duckdb.js";
export { type ColumnType, studyTables, type Table } from "./tables.js";
