import assert from "node:assert/strict";
import { test } from "node:test";
import { shareBar, sortedRows, sparkline, type TopRow, type TopView, topScreen } from "./top-screen.js";

const row = (id: string, busy: number | null, bytes: number): TopRow => ({
  id,
  name: "a worker with a long label",
  state: "ready",
  busy,
  history: [0, 0.5, 1],
  bytes,
  moved: 2e6,
  rate: 12,
  tensors: 3,
  utilization: null,
});
const rows = [row("w1", 0.2, 5e6), row("w2", 0.95, 1e6), row("w10", null, 9e6)];
const view = (parts: Partial<TopView> = {}): TopView => ({
  columns: 80,
  rows: 24,
  order: "n",
  reversed: false,
  paused: false,
  help: false,
  ...parts,
});

test("rows are sorted by a key, numbers by value", () => {
  const ids = (order: TopView["order"], reversed = false): string[] =>
    sortedRows(rows, order, reversed).map((r) => r.id);
  assert.deepEqual(ids("n"), ["w1", "w2", "w10"]);
  assert.deepEqual(ids("b"), ["w2", "w1", "w10"]);
  assert.deepEqual(ids("m"), ["w10", "w1", "w2"]);
  assert.deepEqual(ids("m", true), ["w2", "w1", "w10"]);
});

test("bars and histories have a fixed width and stay within 0 and 1", () => {
  assert.equal(shareBar(0.5, 4, false), "██░░  50%");
  assert.equal(shareBar(7, 4, false), "████ 100%");
  assert.equal(shareBar(-1, 4, false), "░░░░   0%");
  assert.equal(shareBar(null, 4).length, shareBar(0, 4, false).length);
  assert.equal(sparkline([0, 0.5, 1], 5), "  ▁▅█");
  assert.equal(sparkline([0, 0.5, 1], 2), "▅█");
});

test("no line is wider than the terminal, and hidden workers are counted", () => {
  const many = Array.from({ length: 60 }, (_, i) => row(`w${i + 1}`, i / 60, i * 1e6));
  for (const columns of [40, 60, 80, 120, 200]) {
    const lines = topScreen("60 workers, 1 clients, 5 messages", many, view({ columns, help: true })).split("\n");
    for (const line of lines) assert.ok(line.length <= columns, `${columns}: ${line.length} ${line}`);
    assert.ok(lines.length <= 24);
    assert.match(lines.at(-1) ?? "", /and \d+ more workers/);
  }
  assert.match(topScreen("x", rows, view({ order: "b", paused: true })), /by busy {2}PAUSED/);
});
