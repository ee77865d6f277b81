// The help of every command: an example that the command line accepts, and a description for every option.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Command } from "commander";
import { commands } from "../commands/index.js";
import { weftCalls, wrongCall } from "./shell-lines.js";

/** The command and all below it, with their help as it is printed. */
function helpOf(command: Command, path: string): { path: string; command: Command; help: string }[] {
  let help = "";
  command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
  return [{ path, command, help }, ...command.commands.flatMap((child) => helpOf(child, `${path} ${child.name()}`))];
}

test("the help of every command has an example that it accepts, and describes every option", async () => {
  const wrong: string[] = [];
  let examples = 0;
  for (const [name, { load }] of Object.entries(commands)) {
    const program = new Command("weft");
    (await load()).default(program);
    for (const { path, command, help } of program.commands.flatMap((child) => helpOf(child, `weft ${child.name()}`))) {
      for (const option of command.options.filter(({ hidden }) => !hidden))
        if (option.description.trim() === "") wrong.push(`${path}: ${option.flags} has no description`);
      const shown = /^Examples?\b.*:\n((?: {2}.*\n?|\n)+)/m.exec(help)?.[1] ?? "";
      const lines = shown.replaceAll(/\\\n\s*/g, " ").split("\n");
      // A description follows two spaces; continuation lines of descriptions hold no command.
      const calls = lines.flatMap((line) => weftCalls(line.trim().split(/ {2,}/)[0].replaceAll(/[()$]/g, " ")));
      if (calls.length === 0) wrong.push(`${path}: no example`);
      examples += calls.length;
      for (const call of calls) {
        const problem = await wrongCall(call);
        if (problem !== null) wrong.push(`${path}: weft ${call.join(" ")}: ${problem}`);
      }
    }
    assert.ok(program.commands.length > 0, name);
  }
  assert.deepEqual(wrong, []);
  assert.ok(examples > 100, `${examples} examples`);
});
