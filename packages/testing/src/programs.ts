// Programs of the planner's tests.
export * from "../../core/dist/test/programs.js";
