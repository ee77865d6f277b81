// A thread that schedules functions and writes their C. It answers one request after the other.
import { parentPort } from "node:worker_threads";
import { decodeFunction } from "../../ops/index.js";
import { generateProgram } from "./generate.js";
import type { GenerationAnswer, GenerationRequest } from "./generate-async.js";

parentPort!.on("message", ({ id, fn, donated, constants, environment }: GenerationRequest) => {
  // Settings are read from the environment, of which a thread has its own copy.
  Object.assign(process.env, environment);
  const answer = (): GenerationAnswer => {
    try {
      return { id, program: generateProgram(decodeFunction(fn), { donated, constants }), error: null };
    } catch (error) {
      return { id, program: null, error: (error as Error).message };
    }
  };
  parentPort!.postMessage(answer());
});
