// Output of debug.print: through the frame that is being traced, which prints after its program has run, or immediately.
import type { Node } from "../graph/index.js";
import { session } from "../runtime/index.js";
import { format } from "./format.js";
import { Tensor } from "./tensor.js";
import { addEffect } from "./trace.js";

let sink: (text: string) => void = (text) => console.log(text);

/** Sets the function that debug.print writes with; console.log by default. */
export function onPrint(write: (text: string) => void): void {
  sink = write;
}

export function showEffect(label: string, value: Tensor): void {
  const show = (text: string): void => sink(label === "" ? text : `${label}: ${text}`);
  if (!session().device.traits.remote) show(format(value));
  // Values of a remote device arrive asynchronously; print them in program order.
  else
    shown = shown
      .then(async () => show(format(value, await value.data())))
      .catch((error: Error) => show(`not shown: ${error.message}`));
}

let shown: Promise<void> = Promise.resolve();

/** Registers a value with the frame that is being traced, or prints it if there is none. */
export function emitEffect(label: string, node: Node): void {
  if (!addEffect(label, node)) showEffect(label, new Tensor(node));
}
