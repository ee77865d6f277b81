// weft worker: one device of a cluster.
import { availableParallelism } from "node:os";
import { type Command, InvalidArgumentError } from "commander";
import { attempt, CommandError, parseCount, printJson, printText, wrongUsage } from "../terminal/index.js";
import { addSecurity, port, type SecurityFlags, security, untilSignal } from "./cluster-common.js";

interface Options extends SecurityFlags {
  host: string;
  port: number;
  device: string;
  cores?: number;
  coreIds?: number[];
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
  weft worker --device cpu --core-ids 4-7       these cores
  CUDA_VISIBLE_DEVICES=3 weft worker --device cuda   one GPU; or --device cuda:3
  mpirun -n 4 weft worker --cores 1             four workers of one MPI job (the same with srun)

A worker reconnects when its dispatcher restarts. WEFT_DEBUG_WORKER=1 logs what it does.`;

/** Parses --cores; a list belongs to the other option. */
function coreCount(text: string): number {
  if (/^\d+(-\d+)?(,\d+(-\d+)?)*$/.test(text) && !/^\d+$/.test(text))
    throw new InvalidArgumentError(
      `"${text}" is a list of cores; --cores takes their number: write --core-ids ${text}`,
    );
  return parseCount(text);
}

/** Parses core ids: 0,1 or 4-7. */
function coreIds(text: string): number[] {
  const ids = text.split(",").flatMap((piece) => {
    const range = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(piece);
    if (range === null) throw new InvalidArgumentError(`"${text}" is not a list of cores such as 0,1 or 4-7`);
    const [from, to] = [Number(range[1]), Number(range[2] ?? range[1])];
    if (to < from) throw new InvalidArgumentError(`"${piece}" runs backwards; write ${to}-${from}`);
    return Array.from({ length: to - from + 1 }, (_, i) => from + i);
  });
  return [...new Set(ids)];
}

export default function add(program: Command): void {
  addSecurity(
    program
      .command("worker")
      .description("Run a worker: one device of this machine for a dispatcher.")
      .option("--host <host>", "host of the dispatcher", "localhost")
      .option("-p, --port <port>", "its port", port, 9000)
      .option("--device <name>", "cpu, cuda, cuda:1 ..., reference", process.env.CUDA_VISIBLE_DEVICES ? "cuda" : "cpu")
      .option("--cores <n>", "number of cores", coreCount)
      .option("--core-ids <ids>", "the cores themselves: 0,1 or 4-7", coreIds)
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
  const { localDeviceIndex, rankFromEnvironment, Worker } = await import("@weft/cluster/internal");
  if (options.cores !== undefined && options.coreIds !== undefined)
    throw new CommandError("--cores is a number and --core-ids a list: give one of them", wrongUsage);
  const most = availableParallelism();
  if (options.cores !== undefined && options.cores > most)
    throw new CommandError(`--cores ${options.cores}: this process may use ${most} cores`, wrongUsage);
  // A worker of a job takes the GPU of its rank, not the first one of the host.
  const isOfJob = options.device === "cuda" && rankFromEnvironment().launcher !== "none";
  try {
    const worker = new Worker({
      host: options.host,
      port: options.port,
      device: isOfJob ? `cuda:${localDeviceIndex()}` : options.device,
      cores: options.coreIds ?? options.cores,
      label: options.label,
      dataHost: options.dataHost,
      wait: Number(options.wait),
      calibrate: options.calibrate,
      ...security(options),
    });
    const work = worker.run((id) => {
      const facts = { ready: true, id, device: worker.device.name };
      if (options.json) printJson(facts, 0);
      else printText(`${id}: ${worker.device.name} works for ${options.host}:${options.port}\n`);
    });
    await untilSignal(work);
    worker.stop();
    process.exit(0);
  } catch (error) {
    throw new CommandError((error as Error).message);
  }
}
