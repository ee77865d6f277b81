// Entry point of the processes that the local launcher starts: `main.js server {...}` and `main.js worker {...}`.
// Prints a ready line on standard output and exits when the parent process closes its end of standard input.
import { argv, exit, stdin, stdout } from "node:process";
import { Dispatcher } from "./dispatcher.js";
import type { DispatcherOptions } from "./dispatcher-state.js";
import { endWithParent } from "./system.js";
import { Worker, type WorkerOptions } from "./worker.js";

const ready = (facts: object): void => void stdout.write(`${JSON.stringify({ ready: true, ...facts })}\n`);

stdin.resume();
stdin.on("end", () => exit(0));
stdin.on("error", () => exit(0));
stdout.on("error", () => {});

// A worker that computes does not notice that its input has ended.
endWithParent(process.ppid);

const [role, text = "{}"] = argv.slice(2);
try {
  if (role === "server") {
    const dispatcher = await Dispatcher.start(JSON.parse(text) as DispatcherOptions);
    ready({ port: dispatcher.port });
    for (const signal of ["SIGTERM", "SIGINT"] as const)
      process.on(signal, () => {
        dispatcher.stop();
        exit(0);
      });
  } else {
    const worker = new Worker(JSON.parse(text) as WorkerOptions);
    for (const signal of ["SIGTERM", "SIGINT"] as const)
      process.on(signal, () => {
        worker.stop();
        exit(0);
      });
    await worker.run((id) => ready({ id }));
    exit(0);
  }
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`);
  exit(1);
}
