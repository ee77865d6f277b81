// Checks of the values in the key `parameters` (and of --set), with the constructors of parts and pulses.
import { WeftError } from "@weft/core/internal/graph";
import { Pulse, type PulseValue } from "../pulses/index.js";
import { DevicePart } from "../systems/index.js";
import type { GateSpec } from "./gate-spec.js";

/** Throws if `parameters` sets a value that a part, a pulse or a decay does not accept. */
export function checkParameters({ device, jumps, parameters }: GateSpec): void {
  const values = { ...device.values(), ...parameters };
  for (const { key } of jumps)
    if (typeof parameters[key] === "object" || Number(parameters[key] ?? 0) < 0)
      throw new WeftError(`${key}: a decay rate must not be negative, got ${parameters[key]}`);
  for (const [key, value] of Object.entries(parameters)) {
    const usual = device.values()[key];
    const size = (x: PulseValue): number => (typeof x === "number" ? 0 : x.length);
    if (usual !== undefined && size(usual) !== size(value))
      throw new WeftError(
        `${key}: expected ${size(usual) === 0 ? "a number" : `${size(usual)} values`}, got ${size(value) === 0 ? "a number" : `${size(value)} values`}`,
      );
  }
  const ownValue = (key: string): PulseValue => {
    const shared = Object.entries(device.shared).find(([, keys]) => keys.includes(key))?.[0];
    return values[shared ?? key];
  };
  const own = (prefix: string, names: readonly string[]): Record<string, PulseValue> =>
    Object.fromEntries(names.map((name) => [name, ownValue(`${prefix}.${name}`)]));
  // The constructors check their values.
  for (const { on, name, pulse } of device.drives)
    named(`${on}.${name}`, () => new Pulse(pulse.shape, own(`${on}.${name}`, Object.keys(pulse.parameters))));
  for (const [name, part] of Object.entries(device.parts))
    named(
      name,
      () => new DevicePart(part.kind, { ...part.structure, ...own(name, Object.keys(part.parameters)) } as never),
    );
}

/** Adds where a value belongs to the error of a constructor. */
function named(where: string, check: () => unknown): void {
  try {
    check();
  } catch (error) {
    throw error instanceof WeftError ? new WeftError(`parameters: ${where}: ${error.message}`) : error;
  }
}
