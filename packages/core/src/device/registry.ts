// The device registry: every kind of device that this process can create, by name. Other packages add theirs (the cluster
// registers itself when it is imported); nothing outside a device's own folder asks what kind a device is.
import { WeftError } from "../graph/index.js";
import { settings } from "../settings/index.js";
import type { Device } from "./contract.js";
import { CpuDevice } from "./cpu/index.js";
import { CudaDevice, gpuCount } from "./cuda/index.js";
import { ReferenceDevice } from "./reference/index.js";

/** One kind of device: which names it answers to, whether this machine has it, and how one is created. */
interface DeviceFactory {
  /** Matches the names of its devices, such as "cuda" and "cuda:1". */
  readonly pattern: RegExp;
  /** Names to show in messages. */
  readonly examples: string;
  /** Whether a device of this kind can be created here. */
  available(): boolean;
  /** Names of the devices that can be created here. */
  list(): string[];
  /** Creates the device of a name; `match` is what `pattern` found in it. */
  create(match: RegExpExecArray, options: DeviceOptions): Device;
  /** Position among the kinds that may be the default device, lowest first; undefined: never the default. */
  readonly preference?: number;
  /** Printed once when this kind becomes the default. */
  readonly defaultNotice?: string;
}

/** Options of a new device. Each kind ignores the options of the others. */
interface DeviceOptions {
  /** Host threads to compute with; by default one per core. */
  threads?: number;
  /** Host cores to run on. */
  cores?: readonly number[];
  /** Allocate buffers in memory that other processes of this host can map. */
  shared?: boolean;
}

const factories: DeviceFactory[] = [
  {
    pattern: /^reference$/,
    examples: "reference",
    available: () => true,
    list: () => ["reference"],
    create: () => new ReferenceDevice(),
    preference: 9,
    defaultNotice: "weft: no C compiler was found; running on the slow reference device (Debian: apt install gcc)",
  },
  {
    pattern: /^cpu$/,
    examples: "cpu",
    available: () => CpuDevice.available(),
    list: () => (CpuDevice.available() ? ["cpu"] : []),
    create: (_, options) => new CpuDevice(options),
    preference: 1,
  },
  {
    pattern: /^cuda(?::(\d+))?$/,
    examples: "cuda, cuda:1",
    available: () => CudaDevice.available(),
    list: () => {
      const gpus = CudaDevice.available() ? gpuCount() : 0;
      return Array.from({ length: gpus }, (_, i) => (gpus === 1 ? "cuda" : `cuda:${i}`));
    },
    create: (match) => new CudaDevice(Number(match[1] ?? 0)),
  },
];

/** Adds a kind of device; the newest registration of a pattern replaces the one before. */
export function registerDevice(factory: DeviceFactory): void {
  const same = factories.findIndex(({ pattern }) => String(pattern) === String(factory.pattern));
  if (same >= 0) factories[same] = factory;
  else factories.push(factory);
}

/** One device per name, so that tensors created there can be used when it is chosen again. */
const created = new Map<string, Device>();

/**
 * The device of a name: "cpu", "cuda" or "cuda:1", "reference". The same name gives the same device, unless a fault made it unusable.
 *
 * @example
 * ```ts
 * import * as weft from "@weft/core";
 * console.log(weft.device("cpu").name);
 * ```
 */
export function device(name: string): Device {
  const key = name === "cuda" ? "cuda:0" : name;
  const earlier = created.get(key);
  if (earlier !== undefined && (earlier.lost ?? null) === null) return earlier;
  // A GPU whose context died: release what is left of it before a new one takes its place.
  earlier?.close?.();
  const made = createDevice(name);
  created.set(key, made);
  return made;
}

/** Creates a new device of a name, independent of the one that `device` returns. */
export function createDevice(name: string, options: DeviceOptions = {}): Device {
  for (const factory of factories) {
    const match = factory.pattern.exec(name);
    if (match !== null) return factory.create(match, options);
  }
  throw new WeftError(
    `there is no device "${name}"; devices are: ${factories.map(({ examples }) => examples).join(", ")}`,
  );
}

/** Names of the devices that can be created here. */
export const availableDevices = (): string[] => factories.flatMap((factory) => factory.list());

/** The default device: WEFT_DEVICE, or the most preferred kind that this machine has. */
export function defaultDevice(): Device {
  const chosen = settings.device.get();
  if (chosen !== undefined) return device(chosen);
  const candidates = factories
    .filter(({ preference }) => preference !== undefined)
    .sort((a, b) => a.preference! - b.preference!);
  const best = candidates.find((factory) => factory.available())!;
  if (best.defaultNotice !== undefined) console.error(best.defaultNotice);
  return device(best.list()[0]);
}
