// What other folders of this package use of the control files beside their public face.
export { integrationSchema, problemOf, problemSchema, readYaml, tasksOf, tasksSchema } from "./file.js";
