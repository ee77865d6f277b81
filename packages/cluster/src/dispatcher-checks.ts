// What a dispatcher checks of messages before it forwards them, beyond their schema.
import { limits, WeftError } from "@weft/core/internal/graph";
import type { FromClient, FromWorker, WorkerInfo } from "./protocol.js";
import { isLoopback } from "./security.js";

type Message<T, U> = Extract<U, { t: T }>;

/** Refuses a worker that its clients could not reach, or only without encryption. `near`: it is on this machine. */
export function checkWorker({ data }: Message<"hello", FromWorker>, near: boolean): void {
  if (!data.tls && !isLoopback(data.host))
    throw new WeftError(`a worker at ${data.host} must use TLS: start it with --data-host and certificates`);
  if (!near && isLoopback(data.host))
    throw new WeftError(
      `clients would look for this worker at ${data.host} of their own machine: start it with --data-host ADDRESS and certificates`,
    );
}

/** Whether a client reaches a worker. On another machine somebody else may listen at the same loopback address. */
export const canReach = (near: boolean, { data }: Pick<WorkerInfo, "data">): boolean => near || !isLoopback(data.host);

export function checkDefine(
  { members, graphs, which, generation }: Message<"define", FromClient>,
  newest: number,
  programs: number,
): void {
  if (which.length !== members.length || which.some((i) => i >= graphs.length))
    throw new WeftError("define: one graph per member is needed");
  if (new Set(members).size !== members.length) throw new WeftError("define: a worker is named twice");
  if (generation > newest) throw new WeftError(`define: there is no generation ${generation} yet`);
  if (programs >= limits.programs) throw new WeftError(`a client may define ${limits.programs} programs; forget some`);
}

/** Throws if a client holds more tensors than it may. */
export function checkTensors(count: number): void {
  if (count > limits.tensors) throw new WeftError(`a client may hold ${limits.tensors} tensors; free some`);
}

/** Why an upload is refused: a part that is larger than its tensor. */
export function partProblem(
  bytes: number,
  parts: Message<"upload", FromClient>["parts"],
): { message: string; worker: string } | null {
  const large = parts.find(({ sizes, element }) => sizes.reduce((n, size) => n * size, element) > bytes);
  if (large === undefined || bytes === 0) return null;
  return { message: `upload: a part is larger than the ${bytes} bytes of the tensor`, worker: large.worker };
}
