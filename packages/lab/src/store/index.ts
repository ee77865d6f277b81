// Exports of the store.
export { query, writeTables } from "./duckdb.js";
export { columnsOf, studyTables, type Table } from "./tables.js";
