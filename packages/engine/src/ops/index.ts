// One table per concern, each keyed by op. This folder says what ops mean; it knows nothing of devices.
export * from "./reference/index.js";
