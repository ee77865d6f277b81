// Writes the text files of a run's folder. A file is replaced as a whole or not at all, what is appended is appended as a whole, and
// nothing is written through a symbolic link, which somebody else may have placed there.
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { TrainError } from "./errors.js";

/** The error of a file that cannot be written, with what to do. */
function unwritable(path: string, error: NodeJS.ErrnoException): TrainError {
  const remedy =
    error.code === "ENOSPC" || error.code === "EDQUOT"
      ? "make room on this disk, then continue with --resume"
      : error.code === "ELOOP"
        ? "it is a symbolic link; remove it"
        : "name another folder with --out, or continue with --resume when it can be written";
  return new TrainError(`${path} cannot be written: ${error.message.split(",")[0]}; ${remedy}`);
}

/** Creates a file with this content, on disk when it returns. */
export function writeSynced(path: string, text: string): void {
  const file = openSync(path, "wx");
  try {
    writeFileSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** Replaces a file; after an error it is as before. */
export function replaceFile(path: string, text: string): void {
  const temporary = `${path}.tmp`;
  try {
    // What a killed writer left there, or somebody placed.
    rmSync(temporary, { force: true });
    writeSynced(temporary, text);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw unwritable(path, error as NodeJS.ErrnoException);
  }
}

/** Appends to a file; after an error it is as before. */
export function appendWhole(path: string, text: string): void {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
  try {
    const file = openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o666);
    const { size } = fstatSync(file);
    try {
      writeFileSync(file, text);
    } catch (error) {
      // Part of it may have been written.
      ftruncateSync(file, size);
      throw error;
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw unwritable(path, error as NodeJS.ErrnoException);
  }
}
