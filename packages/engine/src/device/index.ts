// The Device contract and its makers.
export * from "./contract.js";
export { ReferenceDevice } from "./reference/index.js";
