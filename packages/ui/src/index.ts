// Public entry of @weft/ui: the server of the local web app.
export { isLoopbackName } from "./server/access.js";
export { startUi, type UiOptions, type UiServer } from "./server/index.js";
