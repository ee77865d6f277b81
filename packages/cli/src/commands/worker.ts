// weft worker: one device of a cluster.
import type { Command } from "commander";
import { attempt, CommandError } from "../terminal/index.js";
import { addSecurity, port, type SecurityFlags, security, untilSignal } from "./cluster-common.js";

interface Options extends SecurityFlags {
  host: string;
  port: number;
  device: string;
  cores?: string;
  label?: string;
  dataHost?: string;
  wait: string;
  calibrate?: boolean;
  json?: boolean;
}

const help = `
Examples:
  weft worker                                   all cores of this machine, dispatcher on localhost:9000
  weft worker --device cpu --cores 2            two cores
  weft worker --device cpu --cores 4-7          these cores
  CUDA_VISIBLE_DEVICES=3 weft worker --device cuda   one GPU; or --device cuda:3
  mpirun -n 4 weft worker --cores 1             four workers of one MPI job (the same with srun)

A worker reconnects when its dispatcher restarts. WEFT_DEBUG_WORKER=1 logs what it does.`;

export function add(program: Command): void {
  addSecurity(
    program
      .command("worker")
      .description("Run a worker: one device of this machine for a dispatcher.")
      .option("--host <host>", "host of the dispatcher", "localhost")
      .option("-p, --port <port>", "its port", port, 9000)
      .option("--device <name>", "cpu, cuda, cuda:1 ..., reference", process.env.CUDA_VISIBLE_DEVICES ? "cuda" : "cpu")
      .option("--cores <cores>", "number of cores (2), or core ids (0,1 or 4-7)")
      .option("--label <text>", "a name for weft top")
      .option("--data-host <host>", "address at which clients reach this worker", undefined)
      .option("--calibrate", "measure the device for the planner again (default: once per machine)")
      .option("--wait <seconds>", "seconds to wait for the dispatcher", "10"),
    "worker",
  )
    .option("--json", "one JSON line when ready")
    .addHelpText("after", help)
    .action((options: Options) => attempt(() => run(options)));
}

async function run(options: Options): Promise<void> {
  const { parseCores, Worker } = await import("@weft/cluster");
  try {
    const worker = new Worker({
      host: options.host,
      port: options.port,
      device: options.device,
      cores: options.cores === undefined ? undefined : parseCores(options.cores),
      label: options.label,
      dataHost: options.dataHost,
      wait: Number(options.wait),
      calibrate: options.calibrate,
      ...security(options),
    });
    const work = worker.run((id) => {
      const facts = { ready: true, id, device: worker.device.name };
      process.stdout.write(
        options.json
          ? `${JSON.stringify(facts)}\n`
          : `${id}: ${worker.device.name} works for ${options.host}:${options.port}\n`,
      );
    });
    await untilSignal(work);
    worker.stop();
    process.exit(0);
  } catch (error) {
    throw new CommandError((error as Error).message);
  }
}
