// Finds the functions of a package that take options, from its compiled declarations: for tests that hold for every public function.
import { existsSync, readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";

/** A public function with an options parameter. */
export interface OptionsParameter {
  /** Name of the function as users write it, such as "conv2d", "io.readNpz" or "linear.init". */
  name: string;
  /** Names and types of its parameters as declared. */
  parameters: { name: string; type: string }[];
  /** Position of the options among the parameters. */
  at: number;
  /** Options and their types. */
  members: Map<string, string>;
}

const brackets = new Map([..."{}()[]<>"].map((c, i) => [c, i % 2 === 0 ? 1 : -1]));

/** Position of the first of some characters that is inside no bracket. */
function endOf(text: string, from: number, wanted: string): number {
  let depth = 0;
  for (let i = from; i < text.length; i++) {
    if (depth === 0 && wanted.includes(text[i])) return i;
    if (text[i] !== ">" || text[i - 1] !== "=") depth += brackets.get(text[i]) ?? 0;
  }
  return text.length;
}

function split(text: string, separator: string): string[] {
  const parts: string[] = [];
  for (let at = 0; at < text.length; ) {
    const end = endOf(text, at, separator);
    parts.push(text.slice(at, end).trim());
    at = end + 1;
  }
  return parts.filter((part) => part !== "");
}

const files = new Map<string, string>();
/** Declarations of a file without comments. */
function textOf(file: string): string {
  if (!files.has(file))
    files.set(file, existsSync(file) ? readFileSync(file, "utf8").replaceAll(/\/\*[\s\S]*?\*\//g, "") : "");
  return files.get(file)!;
}

const beside = (file: string, module: string): string => resolve(dirname(file), module.replace(/\.js$/, ".d.ts"));

/** Members of an interface or a type that is declared in a file or imported there; null if it is something else. */
function namedMembers(file: string, name: string): string[] | null {
  const text = textOf(file);
  const declared = new RegExp(`interface ${name}(?:<[^{]*>)?(?: extends ([^{]+))?\\s*\\{`).exec(text);
  if (declared !== null) {
    const start = declared.index + declared[0].length;
    const own = split(text.slice(start, endOf(text, start, "}")), ";");
    return [...split(declared[1] ?? "", ",").flatMap((parent) => membersOf(file, parent) ?? []), ...own];
  }
  const alias = new RegExp(`type ${name}(?:<[^=]*>)? = `).exec(text);
  if (alias !== null) {
    const start = alias.index + alias[0].length;
    return membersOf(file, text.slice(start, endOf(text, start, ";")));
  }
  for (const [, names, module] of text.matchAll(/(?:import|export) (?:type )?(?:\{([^}]*)\}|\*) from "(\.[^"]+)";/g)) {
    const original = (names ?? name)
      .split(",")
      .map((part) =>
        part
          .trim()
          .replace(/^type /, "")
          .split(" as "),
      )
      .find((part) => part[part.length - 1].trim() === name)?.[0];
    const found = original === undefined ? null : namedMembers(beside(file, module), original.trim());
    if (found !== null) return found;
  }
  return null;
}

/** Members `name?: type` of an object type; null for other types. */
function membersOf(file: string, type: string): string[] | null {
  if (type.startsWith("{")) return split(type.slice(1, endOf(type, 1, "}")), ";");
  const parts = split(type, "&");
  if (parts.length > 1) return parts.flatMap((part) => membersOf(file, part) ?? []);
  const chosen = /^(Omit|Pick)<([\s\S]*?),([\s\S]*)>$/.exec(type);
  if (chosen !== null) {
    const names = [...chosen[3].matchAll(/"(\w+)"/g)].map((match) => match[1]);
    const isNamed = (member: string): boolean => names.includes(/^(?:readonly )?(\w+)/.exec(member)?.[1] ?? "");
    return membersOf(file, chosen[2])?.filter((member) => isNamed(member) === (chosen[1] === "Pick")) ?? null;
  }
  const partial = /^Partial<([\s\S]*)>$/.exec(type);
  if (partial !== null) return membersOf(file, partial[1])?.map((m) => m.replace(/^(\w+):/, "$1?:")) ?? null;
  const name = /^(\w+)(?:<[\s\S]*>)?$/.exec(type)?.[1];
  return name === undefined ? null : namedMembers(file, name);
}

/** The options parameter of a signature, if it has one: an object with optional members that are not functions of an object. */
function ofSignature(file: string, name: string, signature: string): OptionsParameter[] {
  const start = signature.startsWith("<") ? endOf(signature, 1, ">") + 1 : 0;
  if (signature[start] !== "(") return [];
  const parameters = split(signature.slice(start + 1, endOf(signature, start + 1, ")")), ",").map((parameter) => {
    const colon = endOf(parameter, 0, ":");
    return { name: parameter.slice(0, colon).replace("?", "").trim(), type: parameter.slice(colon + 1).trim() };
  });
  return parameters.flatMap((parameter, at) => {
    for (const part of split(parameter.type, "|")) {
      const members = (membersOf(file, part) ?? []).map((text) => /^(?:readonly )?(\w+)(\??):\s*([\s\S]*)$/.exec(text));
      const known = members.filter((match) => match !== null);
      if (!known.some((match) => match[2] === "?") || known.length < members.length) continue;
      const types = known.map((match): [string, string] => [match[1], match[3].replaceAll(/\s+/g, " ")]);
      return [{ name, parameters, at, members: new Map(types) }];
    }
    return [];
  });
}

/** The functions with options that an entry (a compiled `index.d.ts`) exports. */
export function optionsParameters(entry: string): OptionsParameter[] {
  const found: OptionsParameter[] = [];
  const visit = (file: string, wanted: ReadonlySet<string> | null, prefix: string): void => {
    const text = textOf(file);
    for (const [, all, names, module] of text.matchAll(/export (?:\*(?: as (\w+))?|\{([^}]*)\}) from "(\.[^"]+)";/g)) {
      const listed = names
        ?.split(",")
        .map((part) => part.trim().split(" as "))
        .filter((part) => !part[0].startsWith("type ") && (wanted === null || wanted.has(part[part.length - 1])))
        .map(([original]) => original);
      const inner = all === undefined ? prefix : `${prefix}${all}.`;
      if (listed === undefined || listed.length > 0)
        visit(
          beside(file, module),
          listed === undefined ? (all === undefined ? wanted : null) : new Set(listed),
          inner,
        );
    }
    for (const match of text.matchAll(/export declare (function|const) (\w+)/g)) {
      const [whole, kind, name] = match;
      if (wanted !== null && !wanted.has(name)) continue;
      const start = match.index + whole.length;
      const body = text.slice(start, endOf(text, start, ";")).replace(/^:\s*/, "");
      if (kind === "function" || !body.startsWith("{")) found.push(...ofSignature(file, prefix + name, body));
      else
        for (const member of split(body.slice(1, -1), ";")) {
          const method = /^(?:readonly )?(\w+)(?:: )?(?=[<(])/.exec(member);
          if (method !== null)
            found.push(...ofSignature(file, `${prefix}${name}.${method[1]}`, member.slice(method[0].length)));
        }
    }
  };
  visit(entry, null, "");
  return found;
}
