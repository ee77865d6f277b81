// What other folders of this package use of the control files beside their public face.
export { integrationSchema, problemSchema, tasksSchema } from "./file.js";
