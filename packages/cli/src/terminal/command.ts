// Shared by all commands: parsers of counts, messages on standard error, output folders, exit codes.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { mostDevices } from "@weft/formats/limits";
import { plainText } from "@weft/formats/text";
import { InvalidArgumentError } from "commander";
import { failed, interrupted } from "../usage/index.js";
import { paint, widthOf, wrapped } from "./paint.js";
import { makeRoom } from "./progress.js";

export { failed, interrupted, wrongUsage } from "../usage/index.js";

/** An error for the user: printed as a message, without a stack trace. */
export class CommandError extends Error {
  constructor(
    message: string,
    readonly exitCode: number = failed,
  ) {
    super(message);
  }
}

/** Parses `1,2,4` or `1 2 4`; commander calls this for each argument of a variadic option. */
export function parseCounts(value: string, previous: number[] | undefined): number[] {
  const list = previous ?? [];
  for (const part of value.split(/[\s,]+/)) {
    if (part === "") continue;
    const count = Number(part);
    if (!Number.isInteger(count) || count < 1 || count > mostDevices)
      throw new InvalidArgumentError(`"${part}" is not a count from 1 to ${mostDevices}; write 1,2,4 or 1 2 4`);
    list.push(count);
  }
  return list;
}

/** Parses a count of 1 or more. */
export function parseCount(value: string): number {
  const number = Number(value);
  if (!Number.isInteger(number) || number < 1)
    throw new InvalidArgumentError(`"${value}" is not a whole number above 0`);
  return number;
}

/** Writes a message to standard error: a warning, the error that ends a command, or a remark. */
export function warn(message: string, tone: "warning" | "bad" | "dim" = "warning"): void {
  makeRoom();
  const text = wrapped(`weft: ${plainText(message)}`, widthOf(process.stderr));
  process.stderr.write(`${paint[tone](text.slice(0, 5), process.stderr)}${text.slice(5)}\n`);
}

/** Writes a remark to standard error. */
export const note = (message: string): void => warn(message, "dim");

/** Writes files into a folder, which is created if needed; returns their paths. */
export function writeFiles(folder: string, files: Record<string, string>): string[] {
  mkdirSync(folder, { recursive: true });
  return Object.entries(files).map(([name, content]) => {
    const path = join(folder, name);
    writeFileSync(path, content);
    return path;
  });
}

/** Whether Ctrl-C ended the work: the engine was compiling. */
export const isInterrupted = (error: unknown): error is Error =>
  error instanceof Error && error.name === "InterruptedError";

/** What is wrong with a file, by the code of the system's error. */
const fileProblems: Readonly<Record<string, string>> = {
  ENOENT: " does not exist",
  EISDIR: " is a folder, and a file is needed",
  ENOTDIR: " is not a folder, and a folder is needed",
  EACCES: " may not be read or written by this user",
  ENOSPC: " could not be written: the disk is full",
  EROFS: " could not be written: its file system is read-only",
};

/** Runs a command; a CommandError or a missing file becomes a message and an exit code. */
export async function attempt(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (error instanceof CommandError) {
      warn(error.message, "bad");
      process.exitCode = error.exitCode;
      return;
    }
    if (isInterrupted(error)) {
      warn(error.message);
      process.exitCode = interrupted;
      return;
    }
    const system = error as NodeJS.ErrnoException;
    if (system.code !== undefined && system.path !== undefined) {
      warn(`${system.path}${fileProblems[system.code] ?? `: ${system.message}`}`, "bad");
      process.exitCode = failed;
      return;
    }
    throw error;
  }
}
