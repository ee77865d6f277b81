// Tests that run on every available device.
export * from "../../core/dist/test/devices.js";
