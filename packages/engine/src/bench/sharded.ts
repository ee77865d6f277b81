// The rig of a benchmark over several workers.
import { WeftError } from "../graph/index.js";
import type { Job, Rig } from "./child.js";

export async function sharded(job: Job): Promise<Rig> {
  throw new WeftError(`no workers yet for ${job.devices} devices`);
}
