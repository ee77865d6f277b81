// A contestant is a process that answers JSON lines (lib/serve.mjs, peers/torch_cpu.py), kept on the cores and at the
// number of threads that all contestants share.
import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const hasTaskset = spawnSync("taskset", ["--version"], { stdio: "ignore" }).status === 0;

/** The cores that this process may use. */
export function allowedCores() {
  try {
    const list = /^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
    return list.split(",").flatMap((part) => {
      const [from, to = from] = part.split("-").map(Number);
      return Array.from({ length: to - from + 1 }, (_, i) => from + i);
    });
  } catch {
    return [0];
  }
}

export function threadEnvironment(cores) {
  const threads = String(cores.length);
  return {
    OMP_NUM_THREADS: threads,
    OPENBLAS_NUM_THREADS: threads,
    MKL_NUM_THREADS: threads,
    WEFT_THREADS: threads,
    // Idle threads must not spin on the cores that another contestant is being timed on.
    OMP_WAIT_POLICY: process.env.OMP_WAIT_POLICY ?? "",
  };
}

/** A command line that stays on the given cores, where taskset exists. */
export const pinned = (cores, command, args) =>
  hasTaskset ? ["taskset", ["-c", cores.join(","), command, ...args]] : [command, args];

const running = new Set();
for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => {
    for (const contestant of running) contestant.stop();
    process.exit(130);
  });

export class Contestant {
  #waiting = new Map();
  #next = 0;
  #child;
  #errors = "";

  constructor(name, cores, command, args, extra = {}) {
    this.name = name;
    const environment = { ...process.env, ...threadEnvironment(cores), ...extra };
    if (environment.OMP_WAIT_POLICY === "") delete environment.OMP_WAIT_POLICY;
    const [file, line] = pinned(cores, command, args);
    this.#child = spawn(file, line, { stdio: ["pipe", "pipe", "pipe"], env: environment });
    running.add(this);
    this.#child.stderr.on("data", (text) => {
      this.#errors = (this.#errors + text).slice(-4000);
    });
    this.#child.on("error", (error) => this.#fail(error.message));
    this.#child.on("close", (code) => this.#fail(`exit ${code}`));
    this.#child.stdin.on("error", () => {});
    createInterface({ input: this.#child.stdout }).on("line", (line) => {
      if (!line.startsWith("{")) return;
      const { id, error, ...answer } = JSON.parse(line);
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error !== undefined) waiting?.reject(new Error(`${this.name}: ${error}`));
      else waiting?.resolve(answer);
    });
  }

  #fail(reason) {
    running.delete(this);
    for (const { reject } of this.#waiting.values())
      reject(new Error(`${this.name} ended (${reason})\n${this.#errors}`));
    this.#waiting.clear();
  }

  ask(request) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#child.stdin.write(`${JSON.stringify({ id, ...request })}\n`);
    });
  }

  get pid() {
    return this.#child.pid;
  }

  stop() {
    this.#child.kill();
  }
}
