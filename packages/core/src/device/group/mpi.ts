// A process group over MPI: processes that mpirun or srun started, on one host or many. OpenMPI through its C library,
// loaded at run time.
import { existsSync } from "node:fs";
import { type OpAttrs, range, type Shape, WeftError } from "../../graph/index.js";
import { settings } from "../../settings/index.js";
import type { ProcessGroup } from "../contract.js";
import { describeFor } from "./descriptor.js";
import { GroupError, type GroupErrorCode } from "./errors.js";
import { groupLibrary } from "./native/library.js";
import { barrierOf } from "./shm.js";

const folders = [
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/lib64/openmpi/lib",
  "/usr/local/lib",
  "/opt/openmpi/lib",
  "/usr/local/mpi/lib",
  "/opt/hpcx/ompi/lib",
];

/** Where OpenMPI's library is: WEFT_MPI, beside the running mpirun, or where distributions put it. */
export function findMpi(): string | null {
  const chosen = settings.mpi.get();
  if (chosen !== undefined) return chosen;
  const prefix = process.env.OPAL_PREFIX ?? process.env.MPI_HOME;
  const beside = (process.env.PATH ?? "")
    .split(":")
    .filter((folder) => existsSync(`${folder}/mpirun`))
    .map((folder) => `${folder}/../lib`);
  const given = (process.env.LD_LIBRARY_PATH ?? "").split(":").filter((folder) => folder !== "");
  const places = [...(prefix === undefined ? [] : [`${prefix}/lib`]), ...given, ...beside, ...folders];
  const names = ["libmpi.so.40", "libmpi.so"];
  return places.flatMap((folder) => names.map((name) => `${folder}/${name}`)).find((path) => existsSync(path)) ?? null;
}

const initProblems = ["", "could not be loaded", "is not OpenMPI 4 or 5 (its symbols differ)", "could not start"];
const failures: Record<number, readonly [GroupErrorCode, string]> = {
  1: [
    "timeout",
    "a collective did not finish in time; do all ranks issue the same ones? (WEFT_GROUP_TIMEOUT sets the limit in seconds)",
  ],
  6: ["memory", "no memory for the messages of a collective"],
  10: ["internal", "MPI reported an error"],
};

let joined: { rank: number; size: number } | null = null;

export class MpiGroup implements ProcessGroup {
  readonly kind = "mpi";
  readonly native: { call: bigint; group: bigint };
  #open = true;

  private constructor(
    readonly rank: number,
    readonly size: number,
    handle: bigint,
  ) {
    this.native = { call: BigInt(groupLibrary().mpiCollectiveAddress() as number), group: handle };
  }

  /** Joins some processes of the job, by their ranks in it and in any order; all of them by default. */
  static join(members?: readonly number[]): MpiGroup {
    const path = findMpi();
    if (path === null)
      throw new WeftError(
        "OpenMPI's library (libmpi.so.40) was not found; install it (Debian: apt install openmpi-bin) or set WEFT_MPI to its path",
      );
    const library = groupLibrary();
    if (joined === null) {
      const [rank, size] = [new Int32Array(1), new Int32Array(1)];
      const problem = library.mpiInit(path, rank, size) as number;
      if (problem !== 0) throw new WeftError(`MPI (${path}) ${initProblems[problem]}`);
      joined = { rank: rank[0], size: size[0] };
      process.once("exit", () => library.mpiFinalize());
    }
    const timeout = settings.groupTimeout.get();
    const { rank: own, size: all } = joined;
    const world = members ?? range(all);
    const rank = world.indexOf(own);
    if (rank < 0 || world.length > 256 || world.some((r) => !Number.isInteger(r) || r < 0 || r >= all))
      throw new WeftError(`rank ${own} of ${all} cannot join an MPI group of the ranks [${world.slice(0, 20)}]`);
    const handle = library.mpiGroup(rank, world.length, Int32Array.from(world), timeout) as number;
    return new MpiGroup(rank, world.length, BigInt(handle));
  }

  failure(number: number): GroupError {
    const [code, reason] = failures[number] ?? ["internal", `error ${number}`];
    return new GroupError(`MPI group, rank ${this.rank}: ${reason}`, code);
  }

  collective(attrs: OpAttrs["collective"], input: Uint8Array, output: Uint8Array, operand: Shape): void {
    if (!this.#open) throw new WeftError("the MPI group is closed; issue collectives before distributed.shutdown()");
    const descriptor = describeFor(attrs, input, output, operand);
    const code = groupLibrary().mpiCollective(this.native.group, descriptor, input, output, 0) as number;
    if (code !== 0) throw this.failure(code);
  }

  barrier(): void {
    const one = Uint8Array.of(1);
    this.collective(barrierOf(this.rank, this.size), one, one, [1]);
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    groupLibrary().mpiClose(this.native.group);
  }
}
