// The program of a member of a group, for `node` to run.
export * from "../../core/dist/device/group/members.testkit.js";
