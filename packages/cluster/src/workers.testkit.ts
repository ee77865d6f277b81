// Workers for the cluster's tests: on CPU cores, or on WEFT_SHARD_TEST_DEVICE (`cuda` puts them all on the first GPU).
import { CpuDevice } from "@weft/core/internal/device";

const wanted = process.env.WEFT_SHARD_TEST_DEVICE ?? "cpu";

// Plans must not depend on machine load; scripts/test.mjs sets the same for all tests.
process.env.WEFT_RATES ??= "assumed";

export const onGpu = wanted.startsWith("cuda");
export const testWorker = { device: wanted === "cuda" ? "cuda:0" : wanted, cores: 1 };
export const skip = CpuDevice.available() ? false : "no C compiler";
