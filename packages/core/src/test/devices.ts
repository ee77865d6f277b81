// The devices that the suites run on. WEFT_TEST_DEVICES=cpu,cuda selects.
import { before, describe } from "node:test";
import { canEmulate } from "../device/cuda/emulated/index.js";
import { device as emulated, prepareEmulator } from "../device/cuda/emulated/testkit.js";
import { CpuDevice, CudaDevice, type Device, ReferenceDevice, useDevice } from "../index.js";

export interface TestDevice {
  name: string;
  make: () => Device;
}

const known: (TestDevice & { available: () => boolean })[] = [
  { name: "reference", make: () => new ReferenceDevice(), available: () => true },
  { name: "cpu", make: () => new CpuDevice(), available: () => CpuDevice.available() },
  { name: "cuda", make: () => new CudaDevice(), available: () => CudaDevice.available() },
];

/** The CUDA device on libraries that run on the host: its op tests need no GPU. */
export const emulatedDevice: TestDevice & { available: () => boolean } = {
  name: "cuda-emulated",
  make: () => {
    prepareEmulator();
    return emulated();
  },
  available: canEmulate,
};

export const knownDevices: readonly string[] = known.map(({ name }) => name);

/** The devices of this machine, the reference first; the emulated CUDA device only where WEFT_TEST_DEVICES names it. */
export function testDevices(): TestDevice[] {
  const wanted = process.env.WEFT_TEST_DEVICES?.split(",");
  const devices = wanted?.includes(emulatedDevice.name) ? [...known, emulatedDevice] : known;
  return devices.filter(({ name, available }) => (wanted?.includes(name) ?? true) && available());
}

/** The same with the emulated CUDA device, where it was not left out. */
export function testDevicesAndEmulator(): TestDevice[] {
  const byDefault = process.env.WEFT_TEST_DEVICES === undefined && emulatedDevice.available();
  return [...testDevices(), ...(byDefault ? [emulatedDevice] : [])];
}

/** Runs a suite on every device; tests inside find it as the current one. */
export function onEachDevice(body: (device: Device, name: string) => void): void {
  for (const { name, make } of testDevices()) {
    describe(`on ${name}`, () => {
      const device = make();
      before(() => void useDevice(device));
      body(device, name);
    });
  }
}
