// The workers that the cluster's tests start: on CPU cores, or by WEFT_SHARD_TEST_DEVICE on another device (`cuda` puts
// them all on the first GPU).
import { CpuDevice } from "@weft/core/internal/device";

const wanted = process.env.WEFT_SHARD_TEST_DEVICE ?? "cpu";

// What tests see must not depend on how busy a machine is; scripts/test.mjs says the same for all of them.
process.env.WEFT_RATES ??= "assumed";

export const onGpu = wanted.startsWith("cuda");
export const testWorker = { device: wanted === "cuda" ? "cuda:0" : wanted, cores: 1 };
export const skip = CpuDevice.available() ? false : "no C compiler";
