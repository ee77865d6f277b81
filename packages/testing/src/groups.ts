// Processes that form a group.
export * from "../../core/dist/device/group/testkit.js";
