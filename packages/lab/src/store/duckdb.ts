// The DuckDB file that users can query with SQL. DuckDB is loaded on first use.
import type { DuckDBConnection } from "@duckdb/node-api";
import type { Cell, ColumnType, Table } from "./tables.js";

async function withConnection<T>(path: string, work: (connection: DuckDBConnection) => Promise<T>): Promise<T> {
  const { DuckDBInstance } = await import("@duckdb/node-api");
  const instance = await DuckDBInstance.create(path);
  const connection = await instance.connect();
  try {
    return await work(connection);
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

type Appender = Awaited<ReturnType<DuckDBConnection["createAppender"]>>;
const append: Record<ColumnType, (appender: Appender, value: Exclude<Cell, null | undefined>) => void> = {
  VARCHAR: (appender, value) => appender.appendVarchar(String(value)),
  DOUBLE: (appender, value) => appender.appendDouble(Number(value)),
  INTEGER: (appender, value) => appender.appendInteger(Math.trunc(Number(value))),
  BOOLEAN: (appender, value) => appender.appendBoolean(Boolean(value)),
};

/** Writes tables to a database file, replacing tables of the same names. Non-finite numbers become NULL. */
export async function writeTables(path: string, tables: readonly Table[]): Promise<Record<string, number>> {
  return withConnection(path, async (connection) => {
    const written: Record<string, number> = {};
    for (const table of tables) {
      const columns = table.columns.map(([name, type]) => `${quoted(name)} ${type}`).join(", ");
      await connection.run(`CREATE OR REPLACE TABLE ${quoted(table.name)} (${columns})`);
      const appender = await connection.createAppender(table.name);
      let rows = 0;
      for (const row of table.rows) {
        table.columns.forEach(([, type], i) => {
          const value = row[i];
          const missing =
            value === null || value === undefined || (typeof value === "number" && !Number.isFinite(value));
          if (missing) appender.appendNull();
          else append[type](appender, value);
        });
        appender.endRow();
        rows++;
      }
      appender.closeSync();
      written[table.name] = rows;
    }
    return written;
  });
}

/** Runs one SQL statement and returns its rows as objects. */
export async function query(path: string, sql: string): Promise<Record<string, unknown>[]> {
  return withConnection(path, async (connection) => {
    const reader = await connection.runAndReadAll(sql);
    return reader
      .getRowObjectsJS()
      .map((row) =>
        Object.fromEntries(
          Object.entries(row).map(([key, value]) => [key, typeof value === "bigint" ? Number(value) : value]),
        ),
      );
  });
}
