// weft completion: scripts that complete commands, options and their choices in bash, zsh and fish. They are generated from the
// commands themselves, so that they cannot name an option that does not exist.
import { Command } from "commander";
import { attempt, CommandError, printLines, suggestName, wrongUsage } from "../terminal/index.js";
import { addCommands } from "./index.js";

const help = `
Examples, one of which belongs in the start-up file of your shell:
  eval "$(weft completion bash)"
  eval "$(weft completion zsh)"
  weft completion fish | source`;

/** One command with what may follow it. */
interface Node {
  /** Names from the program on: "", "train", "quantum run". */
  path: string;
  commands: { name: string; description: string }[];
  options: { flag: string; description: string; choices: readonly string[] }[];
}

function nodesOf(command: Command, path: string): Node[] {
  const visible = command.createHelp();
  const commands = visible.visibleCommands(command).filter((child) => child.name() !== "help");
  return [
    {
      path,
      commands: commands.map((child) => ({ name: child.name(), description: child.description() })),
      options: visible
        .visibleOptions(command)
        .flatMap(({ long, description, argChoices }) =>
          long == null ? [] : [{ flag: long, description, choices: argChoices ?? [] }],
        ),
    },
    ...commands.flatMap((child) => nodesOf(child, path === "" ? child.name() : `${path} ${child.name()}`)),
  ];
}

/** Text within single quotes. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Words of one command as cases of a shell: names, options, and choices of the option before the cursor. */
function bash(nodes: readonly Node[]): string {
  const words = nodes.map(
    ({ path, commands, options }) =>
      `    ${quoted(path)}) words=${quoted([...commands.map((c) => c.name), ...options.map((o) => o.flag)].join(" "))} ;;`,
  );
  const choices = nodes.flatMap(({ path, options }) =>
    options.flatMap(({ flag, choices }) =>
      choices.length === 0 ? [] : [`    ${quoted(`${path} ${flag}`)}) words=${quoted(choices.join(" "))} ;;`],
    ),
  );
  const nested = nodes.filter(({ path }) => path !== "").map(({ path }) => quoted(path));
  return `_weft() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} path="" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "\${path:+$path }\${COMP_WORDS[i]}" in
    ${nested.join("|")}) path="\${path:+$path }\${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path $previous" in
${choices.join("\n")}
  esac
  if [ -z "$words" ]; then case "$path" in
${words.join("\n")}
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [ \${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
}
complete -o filenames -F _weft weft
`;
}

/** zsh's own completion with descriptions; it is turned on first, which not every start-up file does. */
function zsh(nodes: readonly Node[]): string {
  const described = (name: string, description: string): string =>
    quoted(`${name.replaceAll(":", "\\:")}:${description.replaceAll("\n", " ")}`);
  const words = nodes.map(({ path, commands, options }) => {
    const list = [
      ...commands.map((c) => described(c.name, c.description)),
      ...options.map((o) => described(o.flag, o.description)),
    ];
    return `    ${quoted(path)}) list=(${list.join(" ")}) ;;`;
  });
  const choices = nodes.flatMap(({ path, options }) =>
    options.flatMap(({ flag, choices }) =>
      choices.length === 0 ? [] : [`    ${quoted(`${path} ${flag}`)}) list=(${choices.map(quoted).join(" ")}) ;;`],
    ),
  );
  const nested = nodes.filter(({ path }) => path !== "").map(({ path }) => quoted(path));
  return `(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }
_weft() {
  local at="" i
  local -a list
  for ((i = 2; i < CURRENT; i++)); do
    case "\${at:+$at }\${words[i]}" in
    ${nested.join("|")}) at="\${at:+$at }\${words[i]}" ;;
    esac
  done
  case "$at \${words[CURRENT-1]}" in
${choices.join("\n")}
  esac
  if (( $#list > 0 )); then compadd -- $list; return; fi
  case "$at" in
${words.join("\n")}
  esac
  _describe -V weft list
  [ -z "$at" ] || _files
}
compdef _weft weft
`;
}

function fish(nodes: readonly Node[]): string {
  const lines = nodes.flatMap(({ path, commands, options }) => {
    const seen = path === "" ? [] : path.split(" ").map((name) => `__fish_seen_subcommand_from ${name}`);
    const condition = seen.length === 0 ? "__fish_use_subcommand" : seen.join("; and ");
    return [
      ...commands.map(
        ({ name, description }) => `complete -c weft -n ${quoted(condition)} -a ${name} -d ${quoted(description)}`,
      ),
      ...options.map(
        ({ flag, description, choices }) =>
          `complete -c weft -n ${quoted(condition)} -l ${flag.slice(2)} -d ${quoted(description)}` +
          (choices.length === 0 ? "" : ` -xa ${quoted(choices.join(" "))}`),
      ),
    ];
  });
  return `${lines.join("\n")}\n`;
}

const shells: Readonly<Record<string, (nodes: readonly Node[]) => string>> = { bash, zsh, fish };

export default function add(program: Command): void {
  program
    .command("completion")
    .description("Print a script that completes commands and options in a shell.")
    .argument("<shell>", Object.keys(shells).join(", "))
    .addHelpText("after", help)
    .action((shell: string) => attempt(() => run(shell)));
}

async function run(shell: string): Promise<void> {
  const names = Object.keys(shells);
  if (!names.includes(shell))
    throw new CommandError(`there is no completion for "${shell}" ${suggestName(shell, names, "shells")}`, wrongUsage);
  const program = new Command("weft").option("--version", "print the version");
  await addCommands(program, [], true);
  printLines(shells[shell](nodesOf(program, "")));
}
