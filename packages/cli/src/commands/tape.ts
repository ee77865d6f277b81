// weft tape: show, export, replay and compare recorded runs.
import { writeFileSync } from "node:fs";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  failed,
  printJson,
  printText,
  shorten,
  size,
  table,
  time,
  warn,
} from "../terminal/index.js";

type Tools = typeof import("@weft/cluster");
type Tape = Awaited<ReturnType<Tools["readTape"]>>;

const help = `
WEFT_TAPE=run.tape node program.js records; so does weft bench --tape run.tape.

Examples:
  weft tape show run.tape                       instructions with worker, time and source line
  weft tape stats run.tape                      time by operation and by worker
  weft tape export run.tape -o run.json         for ui.perfetto.dev or chrome://tracing
  weft tape replay run.tape --devices 2         the same program on two workers, results compared
  weft tape diff before.tape after.tape         the first difference, and times side by side
  weft analyze run.tape                         the lab reads tapes too`;

async function load(tools: Tools, path: string): Promise<Tape> {
  try {
    return await tools.readTape(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== undefined) throw error;
    throw new CommandError((error as Error).message);
  }
}

/** Says on standard error what is wrong with tapes; a damaged tape fails the command. */
function report(...tapes: Tape[]): void {
  for (const { path, problems } of tapes)
    for (const problem of new Set(problems)) {
      warn(`${path} is damaged: ${problem}`);
      process.exitCode = failed;
    }
}

const json = (value: unknown): void => void printJson(value);

export default function add(program: Command): void {
  const command = program
    .command("tape")
    .description("Read, export, replay and compare recorded runs.")
    .addHelpText("after", help);
  command
    .command("show <file>")
    .description("Show the instructions in order, with worker, time and source line.")
    .option("-n, --limit <count>", "maximum number of lines", "40")
    .option("--json", "instructions as JSON lines")
    .addHelpText("after", "\nExample:\n  weft tape show run.tape -n 100")
    .action((file: string, options: { limit: string; json?: boolean }) => attempt(() => show(file, options)));
  command
    .command("stats <file>")
    .description("Sum the time by operation and by worker.")
    .option("--json", "the sums as JSON on standard output")
    .addHelpText("after", "\nExample:\n  weft tape stats run.tape")
    .action((file: string, options: { json?: boolean }) => attempt(() => stats(file, options)));
  command
    .command("export <file>")
    .description("Write a trace for Perfetto and chrome://tracing.")
    .option("-o, --out <file>", "output file (default: FILE.json)")
    .option("--json", "print the path of the output as JSON")
    .addHelpText(
      "after",
      "\nExample:\n  weft tape export run.tape -o run.json        then open run.json at ui.perfetto.dev",
    )
    .action((file: string, options: { out?: string; json?: boolean }) => attempt(() => exportTape(file, options)));
  command
    .command("replay <file>")
    .description("Run a tape again, in this process or on workers, and compare every fetched result.")
    .option("--devices <count>", "number of workers (0: in this process)", "0")
    .option("--device <name>", "cpu, cuda, cuda:1 ..., reference", "cpu")
    .option("--json", "the comparison as JSON on standard output")
    .addHelpText(
      "after",
      `
Examples:
  weft tape replay run.tape                     in this process
  weft tape replay run.tape --devices 2         on two workers

Exits with 1 when a result differs from the recorded one, or the tape is damaged.`,
    )
    .action((file: string, options: { devices: string; device: string; json?: boolean }) =>
      attempt(() => replayTape(file, options)),
    );
  command
    .command("diff <first> <second>")
    .description("Show the first difference of two runs, and their times side by side.")
    .option("--json", "the differences as JSON on standard output")
    .addHelpText("after", "\nExample:\n  weft tape diff before.tape after.tape")
    .action((first: string, second: string, options: { json?: boolean }) =>
      attempt(() => diff(first, second, options)),
    );
}

async function show(file: string, options: { limit: string; json?: boolean }): Promise<void> {
  const tape = await load(await import("@weft/cluster"), file);
  const limit = Number(options.limit);
  if (!Number.isInteger(limit) || limit < 1)
    throw new CommandError(`--limit ${options.limit}: give a count of 1 or more`, 2);
  const list = tape.instructions.slice(0, limit);
  if (options.json) {
    for (const instruction of list) printJson(instruction, 0);
    return;
  }
  const origin = tape.instructions.reduce((least, i) => Math.min(least, i.startUs), Infinity);
  const rows = list.map((i) => [
    i.workerId,
    i.op,
    String(i.step),
    time(i.startUs - origin),
    time(i.endUs - i.startUs),
    size(i.bytes),
    i.shapes.join(" "),
    shorten(i.cause ?? "-", 60),
  ]);
  printText(`${table(["worker", "op", "step", "at", "took", "bytes", "results", "cause"], rows, 2)}\n`);
  if (tape.instructions.length > limit) printText(`... ${tape.instructions.length - limit} more (-n shows them)\n`);
}

async function stats(file: string, options: { json?: boolean }): Promise<void> {
  const tools = await import("@weft/cluster/internal");
  const found = tools.tapeStats(await load(tools, file));
  if (options.json) {
    json(found);
    return;
  }
  const whole = found.ops.reduce((n, row) => n + row.us, 0) || 1;
  const ops = found.ops.map((row) => [
    row.op,
    String(row.count),
    time(row.us),
    `${((100 * row.us) / whole).toFixed(1)}%`,
    row.us > 0 ? (row.flops / row.us / 1e3).toFixed(2) : "-",
    row.us > 0 ? (row.bytes / row.us / 1e3).toFixed(2) : "-",
  ]);
  const workers = found.workers.map((row) => [
    row.workerId,
    String(row.instructions),
    time(row.busyUs),
    time(row.communicateUs),
    time(Math.max(0, row.spanUs - row.busyUs)),
  ]);
  printText(
    [
      `${found.runs} runs of ${found.programs} programs, ${found.fetches} results fetched`,
      "",
      table(["op", "count", "time", "share", "GFLOP/s", "GB/s"], ops),
      "",
      table(["worker", "instructions", "busy", "of it communicating", "idle"], workers),
      "",
    ].join("\n"),
  );
}

async function exportTape(file: string, options: { out?: string; json?: boolean }): Promise<void> {
  const tools = await import("@weft/cluster/internal");
  const tape = await load(tools, file);
  if (tape.instructions.length === 0) throw new CommandError(`${file} has no instructions`);
  const out = options.out ?? `${file}.json`;
  writeFileSync(out, JSON.stringify(tools.chromeTrace(tape)));
  if (options.json) json({ out, events: tape.instructions.length });
  else printText(`${out}: ${tape.instructions.length} events; open it at ui.perfetto.dev\n`);
}

async function replayTape(file: string, options: { devices: string; device: string; json?: boolean }): Promise<void> {
  const tools = await import("@weft/cluster/internal");
  const tape = await load(tools, file);
  const devices = Number(options.devices);
  if (!Number.isInteger(devices) || devices < 0)
    throw new CommandError(`--devices ${options.devices}: give a count of 0 or more`, 2);
  const weft = await import("@weft/core");
  // A replay must not overwrite the tape that it reads.
  delete process.env.WEFT_TAPE;
  const cluster = devices === 0 ? null : await tools.connect({ devices, device: options.device });
  let result: Awaited<ReturnType<typeof tools.replay>>;
  try {
    result = await tools.replay(tape, cluster?.device ?? weft.device(options.device));
  } catch (error) {
    throw new CommandError((error as Error).message);
  } finally {
    await cluster?.close();
  }
  const wrong = result.results.filter((r) => !r.ok);
  report(tape);
  if (options.json) json({ ...result, equal: wrong.length === 0, problems: [...new Set(tape.problems)] });
  else {
    const rows = result.results.map((r) => [
      r.what,
      String(r.step),
      r.difference.toExponential(1),
      r.ok ? "equal" : "DIFFERS",
    ]);
    printText(
      `${result.runs} runs on ${devices === 0 ? options.device : `${devices} workers (${options.device})`}; ${result.results.length} results compared, ${wrong.length} differ${result.unchecked > 0 ? `, ${result.unchecked} not on the tape` : ""}\n${table(["result", "step", "relative difference", ""], rows)}\n`,
    );
  }
  if (wrong.length > 0) process.exitCode = failed;
}

async function diff(first: string, second: string, options: { json?: boolean }): Promise<void> {
  const tools = await import("@weft/cluster/internal");
  const tapes = [await load(tools, first), await load(tools, second)] as const;
  for (const tape of tapes)
    for (const line of tape.lines) if (line.type === "data" || line.type === "fetch") tools.bytesOfLine(tape, line);
  report(...tapes);
  const found = tools.diffTapes(...tapes);
  const same = found.firstDifference === null && found.fetches.every((f) => f.equal);
  if (options.json) json({ ...found, same });
  else {
    const unequal = found.fetches.filter((f) => !f.equal).length;
    const rows = found.ops
      .sort((a, b) => Math.abs(b.secondUs - b.firstUs) - Math.abs(a.secondUs - a.firstUs))
      .slice(0, 30)
      .map((row) => [
        row.op,
        `${row.firstCount} / ${row.secondCount}`,
        time(row.firstUs),
        time(row.secondUs),
        row.firstUs > 0 ? `${(row.secondUs / row.firstUs).toFixed(2)}x` : "new",
      ]);
    printText(
      [
        found.firstDifference === null
          ? "The same instructions on the same data."
          : `First difference: ${found.firstDifference}`,
        `${found.fetches.length} results fetched, ${unequal} with different bits.`,
        "",
        table(["op", "count", "first", "second", ""], rows),
        "",
      ].join("\n"),
    );
  }
  if (!same) process.exitCode = failed;
}
