// For the tests of the documentation: the commands `weft …` of shell blocks and of code spans, compared with the options and
// arguments that the command line defines.
import { Command } from "commander";
import { commands } from "../commands/index.js";

/** Words of a line as a shell splits it; a comment ends it. Quotes are removed. */
function words(line: string): string[] {
  const found: string[] = [];
  for (const [word] of line.matchAll(/(?:[^\s"']|"[^"]*"|'[^']*')+/g)) {
    if (word.startsWith("#")) break;
    found.push(word.replaceAll(/["']/g, ""));
  }
  return found;
}

/** The commands of a shell block: continued lines joined, prompts and output removed. */
export function shellLines(code: string, isSession: boolean): string[] {
  const lines = code.replaceAll(/\\\n\s*/g, " ").split("\n");
  return lines.flatMap((line) => {
    if (isSession) return line.startsWith("$ ") ? [line.slice(2)] : [];
    return line.trim() === "" || line.trim().startsWith("#") ? [] : [line.trim()];
  });
}

/** The calls of `weft` in a line, each without its first word: after variables, `npx`, `&&`, `;`, `|` and `--`. */
export function weftCalls(line: string): string[][] {
  const calls: string[][] = [];
  let call: string[] | null = null;
  for (const word of words(line)) {
    if (word === "weft") {
      call = [];
      calls.push(call);
    } else if (["&&", ";", "|", "--", "&", ">"].includes(word)) call = null;
    else call?.push(word.replace(/;$/, ""));
  }
  return calls;
}

const loaded = new Map<string, Command>();
async function loadCommand(name: string): Promise<Command | undefined> {
  if (!(name in commands)) return undefined;
  if (!loaded.has(name)) {
    const program = new Command("weft");
    (await commands[name].load()).default(program);
    loaded.set(name, program);
  }
  return loaded.get(name)!.commands.find((command) => command.name() === name);
}

/** What is wrong with a call of `weft`; null if the command line accepts its options and number of arguments. */
export async function wrongCall(call: readonly string[], wholeCall = true): Promise<string | null> {
  const [name, ...rest] = call;
  if (name === undefined || name.startsWith("-") || /[A-Z<|…]/.test(name) || name === "...") return null;
  let command = await loadCommand(name);
  if (command === undefined) return `there is no command weft ${name}`;
  let path = `weft ${name}`;
  if (command.commands.length > 0 && rest[0] !== undefined && !rest[0].startsWith("-")) {
    const [sub] = rest.splice(0, 1);
    const names = sub.split("|");
    const found = names.map((part) => command!.commands.find((c) => c.name() === part));
    const missing = found.indexOf(undefined);
    if (missing >= 0 && !/^[A-Z]/.test(sub)) return `there is no command ${path} ${names[missing]}`;
    if (names.length > 1 || missing >= 0) return null;
    command = found[0]!;
    path += ` ${sub}`;
  }
  let given = 0;
  for (let i = 0; i < rest.length; i++) {
    const word = rest[i];
    if (!/^-{1,2}[a-z]/.test(word)) {
      if (word !== "...") given++;
      continue;
    }
    const [flag] = word.split("=");
    const option = command.options.find(({ long, short }) => long === flag || short === flag);
    if (option === undefined) return flag === "--help" ? null : `${path} has no option ${flag}`;
    if (!option.required && !option.optional) continue;
    if (word.includes("=")) continue;
    // The value, or the values up to the next option.
    do i++;
    while (option.variadic && rest[i + 1] !== undefined && !rest[i + 1].startsWith("-"));
    if (i >= rest.length && wholeCall && option.required) return `${path} ${flag} needs a value`;
  }
  const needed = command.registeredArguments.filter(({ required }) => required).length;
  if (wholeCall && given < needed) return `${path} needs ${needed} arguments, not ${given}`;
  const { length } = command.registeredArguments;
  if (given > length && !command.registeredArguments.some(({ variadic }) => variadic) && command.commands.length === 0)
    return `${path} takes ${length} arguments, not ${given}`;
  return null;
}
