// A device that records what a GPU would compile, for tests of schedules.
export * from "../../core/dist/device/cuda/schedule.testkit.js";
