// The native side of process groups: compiled once per machine, loaded once per process, called through koffi.
import { totalmem } from "node:os";
import koffi from "koffi";
import { WeftError } from "../../../graph/index.js";
import { sharedObject } from "../../cpu/toolchain.js";
import { nativeSource } from "../../native-source.js";

export const groupSource = (): string => nativeSource("group/native/group.c");

const signatures = {
  arenaOpen: "int wg_arena_open(uint64_t bytes)",
  arenaBase: "uint64_t wg_arena_base()",
  arenaBytes: "uint64_t wg_arena_bytes()",
  arenaUsed: "uint64_t wg_arena_used()",
  hugePages: "uint64_t wg_huge_pages()",
  alloc: "uint64_t wg_alloc(uint64_t bytes)",
  free: "int wg_free(uint64_t address)",
  processStart: "uint64_t wg_process_start(int pid)",
  processState: "int wg_process_state(int pid, uint64_t start)",
  shareOpen: "int wg_share_open(_Out_ uint8_t* name)",
  shareSend: "int wg_share_send(const char* to, const uint8_t* ticket, int withArena)",
  shareReceive: "int wg_share_receive(_Out_ uint8_t* ticket, _Out_ int32_t* who, _Out_ uint8_t* from)",
  shareDiscard: "void wg_share_discard(int fd)",
  shareMap: "uint64_t wg_share_map(int fd, _Out_ uint64_t* bytes)",
  unmap: "void wg_unmap(uint64_t base, uint64_t bytes)",
  copyBox:
    "void wg_copy_box(uint64_t to, const int64_t* toStrides, uint64_t from, const int64_t* fromStrides, const int64_t* sizes, int nd, int64_t element)",
  copyBoxOut:
    "void wg_copy_box_out(_Out_ uint8_t* to, int64_t offset, const int64_t* toStrides, uint64_t from, const int64_t* fromStrides, const int64_t* sizes, int nd, int64_t element)",
  copyIn: "void wg_copy_in(uint64_t to, const uint8_t* from, uint64_t bytes)",
  copyOut: "void wg_copy_out(_Out_ uint8_t* to, uint64_t from, uint64_t bytes)",
  stopFlags: "void wg_stop_flags(uint64_t address)",
  join: "uint64_t wg_join(const char* path, int rank, int size, const int32_t* expected, double timeout, int threads, _Out_ int32_t* error, _Out_ int32_t* detail)",
  limits: "void wg_limits(uint64_t group, double timeout, double stopLimit)",
  failedRank: "int wg_failed_rank(uint64_t group)",
  pidOf: "int wg_pid_of(uint64_t group, int rank)",
  abort: "void wg_abort(uint64_t group)",
  close: "void wg_close(uint64_t group)",
  collective:
    "int weft_collective(uint64_t group, const int64_t* descriptor, const uint8_t* in, _Out_ uint8_t* out, int phase)",
  collectiveAddress: "uint64_t wg_collective_address()",
  movedBytes: "uint64_t wg_moved_bytes()",
  bench:
    "int wg_bench(uint64_t group, const int64_t* descriptor, const int64_t* barrier, uint64_t in, uint64_t out, int turns, _Out_ double* seconds)",
  linkPair: "int wl_pair(_Out_ int32_t* fds)",
  linkGroup: "uint64_t wl_group(int rank, int size, const int32_t* fds, const int32_t* hosts, double timeout)",
  linkLocal: "void wl_local(uint64_t group, uint64_t local)",
  linkMeet: "int wl_meet(uint64_t group, double timeout)",
  linkFailedRank: "int wl_failed_rank(uint64_t group)",
  linkAbort: "void wl_abort(uint64_t group)",
  linkClose: "void wl_close(uint64_t group, double drainSeconds)",
  linkCollective:
    "int wl_collective(uint64_t group, const int64_t* descriptor, const uint8_t* in, _Out_ uint8_t* out, int phase)",
  linkCollectiveAddress: "uint64_t wl_collective_address()",
  mpiInit: "int wm_init(const char* library, _Out_ int32_t* rank, _Out_ int32_t* size)",
  mpiFinalize: "void wm_finalize()",
  mpiGroup: "uint64_t wm_group(int rank, int size, const int32_t* world, double timeout)",
  mpiClose: "void wm_close(uint64_t group)",
  mpiCollective:
    "int wm_collective(uint64_t group, const int64_t* descriptor, const uint8_t* in, _Out_ uint8_t* out, int phase)",
  mpiCollectiveAddress: "uint64_t wm_collective_address()",
  mpiBench: "int wm_bench(uint64_t in, uint64_t out, int count, int turns, _Out_ double* seconds)",
} as const;

// biome-ignore lint/suspicious/noExplicitAny: koffi's functions take and give what their C declarations say.
type NativeFunction = (...args: any[]) => any;
type GroupLibrary = Record<keyof typeof signatures, NativeFunction>;

let library: GroupLibrary | null = null;

/** The library, with this process's shared memory opened. */
export function groupLibrary(): GroupLibrary {
  if (library !== null) return library;
  const lib = koffi.load(sharedObject([groupSource()], { resident: true, openmp: true }).path);
  const made = Object.fromEntries(
    Object.entries(signatures).map(([name, text]) => [name, lib.func(text) as NativeFunction]),
  ) as GroupLibrary;
  const error = made.arenaOpen(totalmem()) as number;
  if (error !== 0)
    throw new WeftError(
      `this process could not open shared memory (system error ${error}); is memfd_create allowed, and the size of files not limited (ulimit -f)?`,
    );
  library = made;
  return library;
}

/** Allocation in memory that the other processes of a group can read in place. Addresses fit a number. */
export const arena = {
  allocate: (bytes: number): number => Number(groupLibrary().alloc(bytes)),
  /** False for an address that is not of this memory. */
  free: (address: number): boolean => groupLibrary().free(address) === 1,
  used: (): number => Number(groupLibrary().arenaUsed()),
};

/** What this process had from others in collectives over shared memory, links and MPI. */
export const nativeMovedBytes = (): number => (library === null ? 0 : Number(library.movedBytes()));
