// gRPC, which is loaded when the first connection or dispatcher needs it: ranks of a training exchange data without it, and a process
// takes a tenth of its start to load it.
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

/** The library `@grpc/grpc-js`. */
export const grpcLibrary = (): typeof import("@grpc/grpc-js") => require("@grpc/grpc-js");
