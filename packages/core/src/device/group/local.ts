// The group of one process: every collective is a copy. Programs for many devices run on it when there is only one.
import { InternalError, type OpAttrs, WeftError } from "../../graph/index.js";
import type { ProcessGroup } from "../contract.js";

export class LocalGroup implements ProcessGroup {
  readonly kind = "local";
  readonly rank = 0;
  readonly size = 1;
  readonly native = null;

  failure(code: number): WeftError {
    return new InternalError(`a group of one cannot fail (${code})`);
  }

  collective(attrs: OpAttrs["collective"], input: Uint8Array, output: Uint8Array): void {
    if (attrs.kind === "exchange" && (attrs.sends.length !== 1 || input.byteLength !== output.byteLength))
      throw new WeftError("exchange: a group of one process can only hand its own tensor to itself");
    output.set(input);
  }

  barrier(): void {}
  close(): void {}
}
