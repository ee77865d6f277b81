// weft top: the workers of a dispatcher and their load.
import type { Command } from "commander";
import { attempt, CommandError, percent, printJson, size, table } from "../terminal/index.js";
import { address, addSecurity, port, type SecurityFlags, security, untilSignal } from "./cluster-common.js";
import { type TopOrder, type TopRow, type TopView, topOrders, topScreen } from "./top-screen.js";

interface Options extends SecurityFlags {
  host: string;
  port: number;
  server?: { host: string; port: number };
  once?: boolean;
  json?: boolean;
}

const help = `
Examples:
  weft top                      live, dispatcher on localhost:9000; h shows the keys (sort, pause, quit)
  weft top --once               print one status
  weft top --once --json        for scripts

ops, kernels and bytes received from other workers (moved) are counted since the worker started; idle is the share of the
last interval without computation.`;

export default function add(program: Command): void {
  addSecurity(
    program
      .command("top")
      .description("Watch the workers of a dispatcher: operations, bytes, idle time, GPU utilization.")
      .option("--host <host>", "host of the dispatcher", "localhost")
      .option("-p, --port <port>", "its port", port, 9000)
      .option("--server <host:port>", "host and port in one, as other commands take them", address),
    "client",
  )
    .option("--once", "print one status and exit")
    .option("--json", "one JSON line per status")
    .addHelpText("after", help)
    .action((options: Options) => attempt(() => run({ ...options, ...options.server })));
}

/** The screen of a terminal: it follows the status, and keys change it. Returns what is called with every status, and the end. */
function openScreen(quit: () => void): { show: (status: Status) => void; close: () => void } {
  const view: TopView = { columns: 80, rows: 24, order: "n", reversed: false, paused: false, help: false };
  const histories = new Map<string, number[]>();
  const rates = new Map<string, ReturnType<typeof ratesOf>>();
  let before: Status | null = null;
  let frame: { summary: string; rows: TopRow[] } | null = null;
  const draw = (): void => {
    if (frame === null) return;
    Object.assign(view, { columns: process.stdout.columns ?? 80, rows: process.stdout.rows ?? 24 });
    process.stdout.write(`\u001b[H\u001b[2J${topScreen(frame.summary, frame.rows, view)}\n`);
  };
  const onKey = (key: string): void => {
    if (key === "q" || key === "\u0003") {
      quit();
      return;
    }
    if (Object.hasOwn(topOrders, key)) view.order = key as TopOrder;
    else if (key === "r") view.reversed = !view.reversed;
    else if (key === "p") view.paused = !view.paused;
    else if (key === "h" || key === "?") view.help = !view.help;
    draw();
  };
  const listen = (data: Buffer): void => {
    for (const key of data.toString("utf8")) onKey(key);
  };
  const { stdin } = process;
  if (stdin.isTTY) {
    stdin.setRawMode(true);
    stdin.on("data", listen);
  }
  process.stdout.on("resize", draw);
  process.stdout.write("\u001b[?1049h\u001b[?25l"); // The other screen, without a cursor.
  return {
    show(status) {
      if (view.paused) return;
      const old = before;
      const rows = status.workers.map((worker) => {
        const { info, stats, state } = worker;
        // Workers report once per second and the dispatcher twice: between reports the last rates stay.
        const fresh = ratesOf(worker, old);
        const { busy, rate } = fresh.busy === null ? (rates.get(info.id) ?? fresh) : fresh;
        rates.set(info.id, { busy, rate });
        const history = histories.get(info.id) ?? [];
        if (fresh.busy !== null) history.push(fresh.busy);
        if (history.length > 200) history.shift();
        histories.set(info.id, history);
        const { bytes = 0, movedBytes: moved = 0, tensors = 0, utilization = null } = stats ?? {};
        return {
          id: info.id,
          name: info.label ?? info.device,
          state,
          busy,
          history,
          bytes,
          moved,
          rate,
          tensors,
          utilization,
        };
      });
      before = status;
      frame = { summary: summaryOf(status), rows };
      draw();
    },
    close() {
      process.stdout.off("resize", draw);
      if (stdin.isTTY) {
        stdin.setRawMode(false);
        stdin.off("data", listen);
        stdin.pause();
      }
      process.stdout.write("\u001b[?25h\u001b[?1049l");
    },
  };
}

async function run(options: Options): Promise<void> {
  const { watch } = await import("@weft/cluster");
  let shown = 0;
  let before: Status | null = null;
  let stop: () => void = () => {};
  let close: () => void = () => {};
  const seen = new Promise<void>((resolve, reject) => {
    const isLive = process.stdout.isTTY && options.once !== true && options.json !== true;
    const screen = isLive ? openScreen(resolve) : null;
    close = () => screen?.close();
    stop = watch(
      `${options.host}:${options.port}`,
      security(options),
      (status) => {
        if (options.json) printJson(status, 0);
        else if (screen !== null) screen.show(status);
        // A rate needs two samples; the first one shows totals.
        else process.stdout.write(`${shown > 0 ? "\n" : ""}${show(status, before)}\n`);
        before = status;
        shown++;
        if (options.once) resolve();
      },
      (message) => reject(new CommandError(message)),
    );
  });
  try {
    await untilSignal(seen);
  } finally {
    close();
  }
  stop();
  if (options.once || process.stdout.isTTY) process.exit(0);
}

/** Busy share and operations per second since the status before. */
function ratesOf(
  { info, stats }: Status["workers"][number],
  before: Status | null,
): { busy: number | null; rate: number | null } {
  const old = before?.workers.find((w) => w.info.id === info.id)?.stats ?? null;
  const seconds = stats !== null && old !== null ? stats.uptimeSeconds - old.uptimeSeconds : 0;
  if (stats === null || old === null || seconds <= 0) return { busy: null, rate: null };
  return { busy: (stats.busySeconds - old.busySeconds) / seconds, rate: (stats.runs - old.runs) / seconds };
}

const summaryOf = ({ workers, clients, messages, bytes, recomputed }: Status): string =>
  `${workers.length} worker${workers.length === 1 ? "" : "s"}, ${clients} client${clients === 1 ? "" : "s"}, ${messages} messages (${size(bytes)}) through the dispatcher` +
  (recomputed > 0 ? `, ${recomputed} lost tensors recomputed` : "");

type Status = Parameters<Parameters<typeof import("@weft/cluster").watch>[2]>[0];

function show(status: Status, before: Status | null): string {
  const rows = status.workers.map((worker) => {
    const { info, stats, state } = worker;
    const { busy } = ratesOf(worker, before);
    return [
      info.id,
      info.label ?? info.device,
      String(info.process.pid),
      state,
      String(stats?.runs ?? 0),
      String(stats?.kernels ?? 0),
      String(stats?.tensors ?? 0),
      size(stats?.bytes ?? 0),
      size(stats?.movedBytes ?? 0),
      busy === null ? "-" : percent(100 * Math.max(0, 1 - busy)),
      stats?.utilization == null ? "-" : percent(stats.utilization),
    ];
  });
  const header = [
    "worker",
    "device",
    "process",
    "state",
    "ops",
    "kernels",
    "tensors",
    "memory",
    "moved",
    "idle",
    "GPU",
  ];
  return [summaryOf(status), table(header, rows, 2)].join("\n");
}
