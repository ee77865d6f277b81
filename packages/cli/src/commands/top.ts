// weft top: the workers of a dispatcher and their load.
import type { Command } from "commander";
import { attempt, CommandError, percent, size, table } from "../terminal/index.js";
import { addSecurity, port, type SecurityFlags, security, untilSignal } from "./cluster-common.js";

interface Options extends SecurityFlags {
  host: string;
  port: number;
  once?: boolean;
  json?: boolean;
}

const help = `
Examples:
  weft top                      live, dispatcher on localhost:9000
  weft top --once               print one status
  weft top --once --json        for scripts

ops, kernels and bytes received from other workers (moved) are counted since the worker started; idle is the share of the
last interval without computation.`;

export function add(program: Command): void {
  addSecurity(
    program
      .command("top")
      .description("Watch the workers of a dispatcher: operations, bytes, idle time, GPU utilization.")
      .option("--host <host>", "host of the dispatcher", "localhost")
      .option("-p, --port <port>", "its port", port, 9000),
    "client",
  )
    .option("--once", "print one status and exit")
    .option("--json", "one JSON line per status")
    .addHelpText("after", help)
    .action((options: Options) => attempt(() => run(options)));
}

async function run(options: Options): Promise<void> {
  const { watch } = await import("@weft/cluster");
  let before: Parameters<Parameters<typeof watch>[2]>[0] | null = null;
  let shown = 0;
  let stop: () => void = () => {};
  const seen = new Promise<void>((resolve, reject) => {
    stop = watch(
      `${options.host}:${options.port}`,
      security(options),
      (status) => {
        // A rate needs two samples; the first one shows totals.
        if (options.json) process.stdout.write(`${JSON.stringify(status)}\n`);
        else {
          const live = process.stdout.isTTY && !options.once;
          process.stdout.write(`${live ? "\u001b[H\u001b[2J" : shown > 0 ? "\n" : ""}${show(status, before)}\n`);
        }
        before = status;
        if (options.once && ++shown > 0) resolve();
      },
      (message) => reject(new CommandError(message)),
    );
  });
  await untilSignal(seen);
  stop();
  if (options.once) process.exit(0);
}

type Status = Parameters<Parameters<typeof import("@weft/cluster").watch>[2]>[0];

function show(status: Status, before: Status | null): string {
  const rows = status.workers.map(({ info, stats, state }) => {
    const old = before?.workers.find((w) => w.info.id === info.id)?.stats ?? null;
    const seconds = stats !== null && old !== null ? stats.uptimeSeconds - old.uptimeSeconds : 0;
    const busy = seconds > 0 ? (stats!.busySeconds - old!.busySeconds) / seconds : null;
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
  return [
    `${status.workers.length} workers, ${status.clients} clients, ${status.messages} messages (${size(status.bytes)}) through the dispatcher${status.recomputed > 0 ? `, ${status.recomputed} lost tensors recomputed` : ""}`,
    table(header, rows, 2),
  ].join("\n");
}
