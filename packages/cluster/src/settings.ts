// The settings of this package (see core/src/settings).
import { choiceSetting, flagSetting, numberSetting, textSetting } from "@weft/core/internal/settings";

const debugLog = (part: string) =>
  flagSetting(`WEFT_DEBUG_${part.toUpperCase()}`, false, {
    summary: `Prints what the ${part} does on standard error.`,
  });

export const clusterSettings = {
  data: choiceSetting("WEFT_CLUSTER_DATA", ["shared", "socket"], "shared", {
    summary: "How values travel between processes of one host: shared memory, or sockets as between hosts.",
    formerly: { name: "WEFT_DATA", matches: (value) => value === "socket" },
  }),
  debug: {
    dispatcher: debugLog("dispatcher"),
    worker: debugLog("worker"),
    client: debugLog("client"),
    planner: debugLog("planner"),
  },
  forceShard: flagSetting("WEFT_FORCE_SHARD", false, {
    summary: "Divides every function among all workers, whatever it costs; for tests.",
  }),
  insecure: flagSetting("WEFT_INSECURE", false, {
    summary: "Uses clusters of this host without tokens: every user of the host may connect.",
  }),
  localRank: numberSetting("WEFT_LOCAL_RANK", undefined, {
    summary: "Rank of this process among those of its host.",
    otherwise: "the rank modulo the number of processes per host",
  }),
  localSize: numberSetting("WEFT_LOCAL_SIZE", undefined, {
    summary: "Number of processes of the job on this host.",
    otherwise: "all of them",
  }),
  python: textSetting("WEFT_RAY_PYTHON", "a command", {
    summary: "Python that starts processes on a Ray cluster; python3 by default.",
  }),
  rates: choiceSetting("WEFT_RATES", ["measured", "assumed"], "measured", {
    summary: "Rates for the planner: measured once per machine, or assumed.",
  }),
  recompute: flagSetting("WEFT_RECOMPUTE", true, { summary: "Recomputes tensors that were lost with a worker." }),
  recomputeBytes: numberSetting("WEFT_RECOMPUTE_BYTES", 256e6, {
    summary: "Bytes of uploaded data that a client retains for recomputation.",
  }),
  recomputeCalls: numberSetting("WEFT_RECOMPUTE_CALLS", 1000, {
    summary: "Calls that a client remembers, and repeats at most, to recompute a tensor.",
  }),
  recomputeSeconds: numberSetting("WEFT_RECOMPUTE_SECONDS", 60, {
    whole: false,
    summary: "Predicted seconds above which a tensor is not recomputed.",
  }),
  rendezvous: textSetting("WEFT_RENDEZVOUS", "host:port", {
    summary: "Where the processes of a job on several hosts find each other; rank 0 listens there.",
  }),
  shardRules: textSetting("WEFT_SHARD_RULES", "a YAML or JSON file", {
    summary: "File with sharding rules for named parts of a program.",
  }),
  tlsCa: textSetting("WEFT_TLS_CA", "a PEM file", {
    summary: "Authority that signed the certificate of the other side.",
  }),
  tlsCert: textSetting("WEFT_TLS_CERT", "a PEM file", {
    summary: "Certificate of this process, for connections beyond loopback.",
  }),
  tlsKey: textSetting("WEFT_TLS_KEY", "a PEM file", { summary: "Private key of the certificate." }),
  token: textSetting("WEFT_TOKEN", "a secret", {
    summary: "Token of the clients of a cluster; on this host found automatically by the same user.",
  }),
  workerToken: textSetting("WEFT_WORKER_TOKEN", "a secret", {
    summary: "Token of the workers of a cluster; on this host found automatically by the same user.",
  }),
  worldSize: numberSetting("WEFT_WORLD_SIZE", undefined, {
    least: 1,
    summary: "Number of processes in the process group.",
    otherwise: "from the launcher (OpenMPI, SLURM)",
  }),
} as const;
