// Parses the SLURM directives, launch commands and assignments of a job script. It is not a shell: what it cannot resolve is
// unknown, and unknown values are never reported.

export interface Launch {
  line: number;
  text: string;
  /** StartedCommand by srun, so once for each task. */
  bySrun: boolean;
  launcher: "torchrun" | "mpirun" | "python" | "weft";
  /** Flags of the launcher, or of `weft train`: `nproc_per_node` -> value. */
  flags: Map<string, string>;
  /** `srun`'s own flags. */
  srunFlags: Map<string, string>;
  /** YAML files named in the command. */
  configs: string[];
}

export interface Script {
  file: string;
  isSlurm: boolean;
  directives: Map<string, { value: string; line: number }>;
  variables: Map<string, { value: string; line: number }>;
  launches: Launch[];
  /** Lines of directives behind the first command, where SLURM does not read them. */
  lateDirectives: number[];
}

const longNames: Record<string, string> = {
  N: "nodes",
  n: "ntasks",
  c: "cpus-per-task",
  J: "job-name",
  p: "partition",
  t: "time",
  G: "gpus",
  o: "output",
  e: "error",
  A: "account",
  w: "nodelist",
};

/** `--name=value`, `--name value`, `-N4`, `-N 4`. */
function readFlags(words: readonly string[]): { flags: Map<string, string>; rest: string[] } {
  const flags = new Map<string, string>();
  let i = 0;
  for (; i < words.length; i++) {
    const word = words[i]!;
    const next = words[i + 1];
    const long = /^--([A-Za-z][\w-]*)(?:=(.*))?$/.exec(word);
    const short = /^-([A-Za-z])(.*)$/.exec(word);
    if (long !== null) {
      const takesNext =
        long[2] === undefined && next !== undefined && !next.startsWith("-") && !standalone.has(long[1]!);
      flags.set(long[1]!.replaceAll("_", "-"), long[2] ?? (takesNext ? words[++i]! : ""));
    } else if (short !== null) {
      const name = longNames[short[1]!] ?? short[1]!;
      flags.set(
        name,
        short[2] !== "" ? short[2]!.replace(/^=/, "") : next !== undefined && !next.startsWith("-") ? words[++i]! : "",
      );
    } else break;
  }
  return { flags, rest: words.slice(i) };
}

/** Flags of the launchers that take no value. */
const standalone = new Set(
  "standalone exclusive unbuffered no-python module label help resume json explain no-evaluate".split(" "),
);

/** Lines joined at a trailing backslash, each with the number of its first line. */
function logicalLines(text: string): { text: string; line: number }[] {
  const out: { text: string; line: number }[] = [];
  let pending: { text: string; line: number } | null = null;
  text.split(/\r?\n/).forEach((raw, i) => {
    const joined: string = pending === null ? raw : `${pending.text} ${raw.trim()}`;
    const line: number = pending?.line ?? i + 1;
    if (joined.endsWith("\\")) pending = { text: joined.slice(0, -1).trimEnd(), line };
    else {
      out.push({ text: joined, line });
      pending = null;
    }
  });
  if (pending !== null) out.push(pending);
  return out;
}

/** The lines of a script without the text of here-documents, which the shell hands to a command as it is. */
function withoutDocuments(lines: readonly { text: string; line: number }[]): { text: string; line: number }[] {
  const ends: string[] = [];
  return lines.filter(({ text }) => {
    if (ends.length > 0) {
      if (text.trim() === ends[0]) ends.shift();
      return false;
    }
    if (!text.trimStart().startsWith("#"))
      // Inside of (( )) the same characters shift a number.
      for (const match of text.replaceAll(/\(\(.*?\)\)/g, "").matchAll(/(?<!<)<<-?\s*(["']?)([A-Za-z_]\w*)\1/g))
        ends.push(match[2]!);
    return true;
  });
}

const words = (text: string): string[] =>
  (text.match(/(?:"[^"]*"|'[^']*'|\$\([^)]*\)|[^\s"'])+/g) ?? []).map((w) => w.replaceAll(/^["']|["']$/g, ""));

/** Replaces variables that the script itself sets to plain values. */
function expand(text: string, variables: Script["variables"]): string {
  return text.replaceAll(/\$\{?(\w+)\}?/g, (whole, name: string) => variables.get(name)?.value ?? whole);
}

function readLaunch(list: string[], line: number, text: string): Launch | null {
  let rest = list;
  let bySrun = false;
  let srunFlags = new Map<string, string>();
  while (rest.length > 0 && (/^\w+=/.test(rest[0]!) || ["exec", "time", "nohup", "env", "sudo"].includes(rest[0]!)))
    rest = rest.slice(1);
  if (rest[0] === "srun") {
    bySrun = true;
    const read = readFlags(rest.slice(1));
    srunFlags = read.flags;
    rest = read.rest;
  }
  const command = rest[0]?.split("/").at(-1);
  const module = rest[1] === "-m" ? rest[2] : undefined;
  const torchModule = module !== undefined && /^torch\.distributed\.(run|launch)$/.test(module);
  const python = command !== undefined && /^python[\d.]*$/.test(command);
  const trains = rest.findIndex((w, i) => w === "train" && /(^|\/)weft(\.js)?$/.test(rest[i - 1] ?? ""));
  if (trains < 0 && command !== "torchrun" && command !== "mpirun" && !python) return null;
  const launcher =
    trains >= 0
      ? "weft"
      : command === "mpirun"
        ? "mpirun"
        : command === "torchrun" || torchModule
          ? "torchrun"
          : "python";
  const after =
    launcher === "weft"
      ? rest.slice(trains + 1).filter((w) => !/\.ya?ml$/.test(w))
      : launcher === "python"
        ? []
        : rest.slice(torchModule ? 3 : 1);
  return {
    line,
    text,
    bySrun,
    launcher,
    flags: readFlags(after).flags,
    srunFlags,
    configs: rest.filter((w) => /\.ya?ml$/.test(w)),
  };
}

export function readScript(text: string, file: string): Script {
  const directives: Script["directives"] = new Map();
  const variables: Script["variables"] = new Map();
  const launches: Launch[] = [];
  const lateDirectives: number[] = [];
  let begun = false;
  for (const { text: raw, line } of withoutDocuments(logicalLines(text))) {
    const directive = /^#SBATCH\s+(.*)$/.exec(raw.trim());
    if (directive !== null && begun) lateDirectives.push(line);
    else if (directive !== null) {
      const read = readFlags(words(directive[1]!.replace(/\s+#.*$/, "")));
      for (const [name, value] of read.flags) directives.set(name, { value, line });
    }
    const code = raw.trim();
    if (code === "" || code.startsWith("#")) continue;
    begun = true;
    const assignment = /^(?:export\s+)?([A-Za-z_]\w*)=(\S*|"[^"]*"|'[^']*'|\$\(.*\))\s*$/.exec(code);
    if (assignment !== null) {
      const value = assignment[2]!.replaceAll(/^["']|["']$/g, "");
      const known = value.startsWith("$(") ? value : expand(value, variables);
      const before = variables.get(assignment[1]!);
      // Set twice, perhaps in branches: which value holds is unknown.
      variables.set(assignment[1]!, { value: before === undefined || before.value === known ? known : "$?", line });
      continue;
    }
    const launch = readLaunch(words(expand(code, variables)), line, code);
    if (launch !== null) launches.push(launch);
  }
  return { file, isSlurm: directives.size > 0, directives, variables, launches, lateDirectives };
}

/** A positive whole number, or null when it is anything else (a variable, a range). */
export function positiveInteger(value: string | undefined): number | null {
  return value !== undefined && /^\d+$/.test(value) && Number(value) > 0 ? Number(value) : null;
}
