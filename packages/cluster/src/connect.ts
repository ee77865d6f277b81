// connect: makes a cluster the current device. It connects to an address or starts local workers.
import type { Device } from "@weft/core/internal/device";
import { checkOptionNames, WeftError } from "@weft/core/internal/graph";
import { session, tape, useDevice } from "@weft/core/internal/runtime";
import { settings } from "@weft/core/internal/settings";
import { Connection, type ConnectOptions } from "./connection.js";
import { ClusterDevice } from "./device.js";
import { type LaunchOptions, LocalCluster } from "./launch.js";
import type { WorkerInfo } from "./protocol.js";
import { RayCluster, type RayOptions } from "./ray.js";
import { readRules } from "./rules.js";

/** A connected cluster, as `connect` returns it. */
export interface Cluster {
  /** The cluster as a device; `connect` makes it the current one. */
  readonly device: ClusterDevice;
  /** The workers at the time of the connection. */
  readonly workers: readonly WorkerInfo[];
  /** Address of the dispatcher, HOST:PORT. */
  readonly address: string;
  /** The processes that connect started on this machine; null when it connected to a running dispatcher or used Ray. */
  readonly local: LocalCluster | null;
  /** Closes the connection, stops the processes that connect started, and restores the previous device. */
  close(): Promise<void>;
}

type Target = string | (LaunchOptions & ConnectOptions) | (RayOptions & { device?: string } & ConnectOptions);

/** Names of options; the compiler reports a missing one. */
const namesOf = <T>(names: Record<keyof T, true>): (keyof T)[] => Object.keys(names) as (keyof T)[];
const connectNames = namesOf<ConnectOptions>({
  ...({ token: true, workerToken: true, tokenFile: true, workerTokenFile: true, insecure: true } as const),
  ...({ cert: true, key: true, ca: true, tape: true, maxTensors: true, maxBytes: true, maxQueue: true } as const),
  ...({ maxSeconds: true, maxCompileSeconds: true, timeout: true, label: true, sharding: true, mesh: true } as const),
});
const startNames = namesOf<LaunchOptions & RayOptions & { device?: string }>({
  ...({ devices: true, device: true, cores: true, pin: true, port: true, timeout: true, env: true } as const),
  ...({ calibrate: true, ray: true, gpus: true, strategy: true } as const),
});

const connectionOptions = (options: ConnectOptions): ConnectOptions => ({
  ...options,
  tape: options.tape ?? settings.tape.isSet(),
});

/**
 * Connects to a dispatcher, or starts one with local workers, and makes the cluster the current device.
 *
 * @param target An address ("localhost:9000"), options for a local cluster ({ devices: 4 }), or for workers on a Ray
 * cluster ({ ray: "auto", devices: 4 }). Defaults to WEFT_CONNECT.
 * @example
 * ```ts
 * import { connect } from "@weft/cluster";
 * import * as weft from "@weft/core";
 *
 * const cluster = await connect({ devices: 2, cores: 1 });
 * const x = weft.ones([4, 3]);
 * console.log(await x.matmul(weft.ones([3, 2])).sum().item()); // 24
 * await cluster.close();
 * ```
 */
export async function connect(target?: Target, options: ConnectOptions = {}): Promise<Cluster> {
  checkOptionNames("connect", options, connectNames);
  const wanted = target ?? settings.connect.get();
  if (wanted === undefined || wanted === "")
    throw new WeftError(
      'connect: give an address ("localhost:9000"), { devices: 4 } to start workers here, or set WEFT_CONNECT',
    );
  if (typeof wanted === "string") return open(wanted, options, null);
  checkOptionNames<object>("connect", wanted, [...startNames, ...connectNames] as never[]);
  const started = "ray" in wanted ? await RayCluster.start(wanted) : await LocalCluster.start(wanted);
  try {
    return await open(started.address, { ...wanted, ...options, token: started.token }, started);
  } catch (error) {
    await started.stop();
    throw error;
  }
}

async function open(
  address: string,
  options: ConnectOptions,
  started: LocalCluster | RayCluster | null,
): Promise<Cluster> {
  const before: Device | null = settings.connect.isSet() ? null : session().device;
  const device = clusterDevice(address, options);
  const { connection } = device;
  await connection.ready;
  await connection.linked();
  useDevice(device);
  return {
    device,
    address,
    local: started instanceof LocalCluster ? started : null,
    get workers() {
      return connection.workers;
    },
    async close() {
      connection.close();
      if (before !== null && session().device === device) useDevice(before);
      await started?.stop();
    },
  };
}

/** Creates the device without waiting. Operations are queued until the connection is established. */
export function makeClusterDevice(address: string, options: ConnectOptions = {}): ClusterDevice {
  checkOptionNames("makeClusterDevice", options, connectNames);
  return clusterDevice(address, options);
}

function clusterDevice(address: string, options: ConnectOptions): ClusterDevice {
  const settings = connectionOptions(options);
  const connection = new Connection(address, settings);
  connection.onTape = (records) => tape()?.write(...(records as object[]));
  const { mesh, sharding } = options;
  const device = new ClusterDevice(connection);
  device.executables.constraints = { mesh, rules: sharding === undefined ? undefined : readRules(sharding) };
  return device;
}
