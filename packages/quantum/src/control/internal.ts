// Schemas for other folders of this package.
export { integrationSchema, problemSchema, tasksSchema } from "./file.js";
