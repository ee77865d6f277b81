// Where debug.print goes: to the frame that is being traced, which shows it when its program has run, or out at once.
import type { Node } from "../graph/index.js";
import { format } from "./format.js";
import { Tensor } from "./tensor.js";
import { addEffect } from "./trace.js";

let sink: (text: string) => void = (text) => console.log(text);

/** Where debug.print writes; the console by default. */
export function onPrint(write: (text: string) => void): void {
  sink = write;
}

export function showEffect(label: string, value: Tensor): void {
  sink(label === "" ? format(value) : `${label}: ${format(value)}`);
}

/** Hands a value to the frame that is being traced, or shows it when there is none. */
export function emitEffect(label: string, node: Node): void {
  if (!addEffect(label, node)) showEffect(label, new Tensor(node));
}
