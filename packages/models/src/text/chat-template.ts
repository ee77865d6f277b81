// Chat templates, which are programs for Jinja: rendered by @huggingface/jinja, with the rules of Python where that library has
// those of JavaScript. A template that prints a list, adds one to a text or reads a key of nothing would otherwise make a prompt
// that the model was not trained with.
import { Environment, Interpreter, parse, tokenize } from "@huggingface/jinja";
import { ModelError } from "../config/index.js";

/** A value of a running template. */
interface Value {
  readonly type: string;
  readonly value: unknown;
}

/** A node of a parsed template. */
interface Node {
  readonly type: string;
  readonly [name: string]: unknown;
}

/** The interpreter of the library, whose declarations do not resolve. */
const Base = Interpreter as new (
  environment: Environment,
) => {
  run(program: Node): Value;
  evaluate(statement: Node | undefined, environment: Environment): Value;
  evaluateBlock(statements: Node[], environment: Environment): Value;
};

/** Lists of statements inside a statement. */
const blocks = ["body", "alternate", "defaultBlock"];
const statements = new Set([
  ...["Set", "If", "For", "Macro", "CallStatement", "FilterStatement", "Break", "Continue", "Comment"],
]);

/** Marks the expressions whose values are printed. */
function markPrinted(node: Node): Node {
  const changed = blocks.flatMap((name) => {
    const list = node[name];
    if (!Array.isArray(list)) return [];
    const marked = (list as Node[]).map((one) =>
      statements.has(one.type) ? markPrinted(one) : { type: "Printed", of: one },
    );
    return [[name, marked] as const];
  });
  return Object.assign(Object.create(Object.getPrototypeOf(node)), node, Object.fromEntries(changed)) as Node;
}

/** A text in quotes as Python prints it inside a list. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes: Record<string, string> = {
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\\": "\\\\",
    [quote]: `\\${quote}`,
  };
  return quote + Array.from(text, (c) => escapes[c] ?? c).join("") + quote;
}

const printers: Readonly<Record<string, (value: Value) => string>> = {
  StringValue: ({ value }) => quoted(value as string),
  BooleanValue: ({ value }) => (value === true ? "True" : "False"),
  NullValue: () => "None",
  UndefinedValue: () => "Undefined",
  ArrayValue: ({ value }) => `[${(value as Value[]).map(shown).join(", ")}]`,
  TupleValue: ({ value }) =>
    `(${(value as Value[]).map(shown).join(", ")}${(value as Value[]).length === 1 ? "," : ""})`,
  ObjectValue: ({ value }) =>
    `{${Array.from(value as Map<string, Value>, ([name, one]) => `${quoted(name)}: ${shown(one)}`).join(", ")}}`,
};

/** A value as Python's repr writes it. */
const shown = (value: Value): string => printers[value.type]?.(value) ?? String(value);

/** A value as Python's str writes it. */
const printed = (value: Value): string =>
  value.type === "StringValue" ? (value.value as string) : value.type === "UndefinedValue" ? "" : shown(value);

const isNumber = ({ type }: Value): boolean => /^(Integer|Float|Boolean)Value$/.test(type);

/** Whether two values are equal: numbers by value, texts by characters, lists and objects by their contents. */
function equal(a: Value, b: Value): boolean {
  if (isNumber(a) && isNumber(b)) return Number(a.value) === Number(b.value);
  if (a.type !== b.type) return false;
  if (Array.isArray(a.value)) {
    const [own, other] = [a.value as Value[], b.value as Value[]];
    return own.length === other.length && own.every((one, i) => equal(one, other[i]));
  }
  if (a.value instanceof Map) {
    const [own, other] = [a.value as Map<string, Value>, b.value as Map<string, Value>];
    return own.size === other.size && [...own].every(([name, one]) => other.has(name) && equal(one, other.get(name)!));
  }
  return a.value === b.value;
}

/** A floating-point number as Python writes it: 1.0, 1e+16, 1e-05. */
function floatText(x: number): string {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity";
  const size = Math.abs(x);
  if (size !== 0 && (size >= 1e16 || size < 1e-4))
    return x.toExponential().replace(/e([+-])(\d)$/, (_, sign: string, digit: string) => `e${sign}0${digit}`);
  return Number.isInteger(x) ? `${x}.0` : String(x);
}

/** A copy of a value in which what the library writes in another way is a text between marks, by its place in `texts`. */
function withMarks(value: Value, mark: string, texts: string[]): Value {
  const marked = (text: string): Value => ({ type: "StringValue", value: `${mark}${texts.push(text) - 1}${mark}` });
  if (value.type === "FloatValue") return marked(floatText(value.value as number));
  if (Array.isArray(value.value)) {
    const list = value.value as Value[];
    if (list.length === 0) return marked("[]");
    return { type: "ArrayValue", value: list.map((one) => withMarks(one, mark, texts)) };
  }
  if (value.value instanceof Map) {
    const entries = [...(value.value as Map<string, Value>)];
    if (entries.length === 0) return marked("{}");
    return { type: value.type, value: new Map(entries.map(([name, one]) => [name, withMarks(one, mark, texts)])) };
  }
  return value;
}

/** Removes characters at the ends of a text: white space by default. */
function stripped(text: string, chars: unknown, ends: "both" | "left" | "right"): string {
  const letters = Array.from(text);
  const removed = (c: string): boolean => (typeof chars === "string" ? chars.includes(c) : c.trim() === "");
  let [from, to] = [0, letters.length];
  if (ends !== "right") while (from < to && removed(letters[from])) from++;
  if (ends !== "left") while (to > from && removed(letters[to - 1])) to--;
  return letters.slice(from, to).join("");
}

/** Methods of texts that the library lacks, or whose arguments it ignores. */
const textMethods: Readonly<Record<string, (text: string, args: readonly Value[]) => string | number | boolean>> = {
  strip: (text, [chars]) => stripped(text, chars?.value, "both"),
  lstrip: (text, [chars]) => stripped(text, chars?.value, "left"),
  rstrip: (text, [chars]) => stripped(text, chars?.value, "right"),
  find(text, [part]) {
    const at = text.indexOf(String(part?.value));
    return at < 0 ? -1 : Array.from(text.slice(0, at)).length;
  },
  count: (text, [part]) => text.split(String(part?.value)).length - 1,
  join: (text, [list]) => ((list?.value ?? []) as Value[]).map((one) => printed(one)).join(text),
  isdigit: (text) => /^\p{Nd}+$/u.test(text),
  capitalize: (text) => text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase(),
  removeprefix: (text, [part]) =>
    text.startsWith(String(part?.value)) ? text.slice(String(part?.value).length) : text,
  removesuffix: (text, [part]) =>
    part?.value !== "" && text.endsWith(String(part?.value)) ? text.slice(0, -String(part?.value).length) : text,
};

/** Filters of lists that texts have too: of their characters. */
const characterFilters = new Set(["length", "count", "list", "first", "last", "reverse"]);

/** Thrown by `{% break %}` and `{% continue %}`, with the text of the iteration until then. */
class EndIteration extends Error {
  text = "";
  constructor(readonly kind: string) {
    super(`{% ${kind.toLowerCase()} %} is outside of a loop`);
  }
}

/** What happened in the iterations of a running loop. */
interface LoopState {
  started: boolean;
  /** One reached its end. */
  completed: boolean;
  /** One ran into `{% break %}`. */
  ended: boolean;
}

class PythonRules extends Base {
  readonly #make = (type: string, value: unknown, environment: Environment): Value =>
    super.evaluate({ type, value }, environment);

  override evaluate(statement: Node | undefined, environment: Environment): Value {
    const node = statement as Node;
    switch (node?.type as string | undefined) {
      case "Printed":
        return this.#make("StringLiteral", printed(this.evaluate(node["of"] as Node, environment)), environment);
      case "Evaluated":
        return node["of"] as Value;
      case "Break":
      case "Continue":
        throw new EndIteration(node.type);
      case "For":
        return this.#loop(node, environment);
      case "Iteration":
        return this.#iteration(node, environment);
      case "BinaryExpression":
        return this.#binary(node, environment);
      case "FilterExpression":
        return this.#filter(node, environment);
      case "CallExpression":
        return this.#call(node, environment);
      case "MemberExpression": {
        const object = this.evaluate(node["object"] as Node, environment);
        const property = node["property"] as Node;
        if (object.type === "StringValue" && node["computed"] === true && property.type !== "SliceExpression") {
          const at = this.evaluate(property, environment);
          // Characters, not units of UTF-16.
          const letter = Array.from(object.value as string).at(Number(at.value));
          if (at.type === "IntegerValue")
            return letter === undefined
              ? this.#make("Identifier", "\0", environment)
              : this.#make("StringLiteral", letter, environment);
        }
        if (object.type === "UndefinedValue") {
          const name = (node["object"] as Node)["value"];
          throw new ModelError(`${typeof name === "string" ? name : "a value"} is undefined, and a part of it is read`);
        }
        return super.evaluate({ ...node, object: { type: "Evaluated", of: object } }, environment);
      }
    }
    return super.evaluate(statement, environment);
  }

  override evaluateBlock(list: Node[], environment: Environment): Value {
    let text = "";
    for (const statement of list)
      try {
        const { type, value } = this.evaluate(statement, environment);
        if (type !== "NullValue" && type !== "UndefinedValue") text += String(value);
      } catch (error) {
        if (error instanceof EndIteration) error.text = text + error.text;
        throw error;
      }
    return this.#make("StringLiteral", text, environment);
  }

  #loop(node: Node, environment: Environment): Value {
    const state: LoopState = { started: false, completed: false, ended: false };
    const { value } = super.evaluate({ ...node, body: [{ type: "Iteration", of: node["body"], state }] }, environment);
    // As in Python, else applies also where no iteration reached its end.
    const isEmpty = state.started && !state.completed;
    const more = isEmpty ? this.evaluateBlock(node["defaultBlock"] as Node[], environment).value : "";
    return this.#make("StringLiteral", `${String(value)}${String(more)}`, environment);
  }

  /** The body of a loop. It has variables of its own, and what it printed before `{% break %}` or `{% continue %}` stays. */
  #iteration({ of, state }: Node, environment: Environment): Value {
    const loop = state as LoopState;
    loop.started = true;
    if (loop.ended) return this.#make("StringLiteral", "", environment);
    try {
      const text = this.evaluateBlock(of as Node[], new Environment(environment));
      loop.completed = true;
      return text;
    } catch (error) {
      if (!(error instanceof EndIteration)) throw error;
      loop.ended = error.kind === "Break";
      return this.#make("StringLiteral", error.text, environment);
    }
  }

  /** A filter: JSON with the numbers of Python, and lengths and characters of texts by code points. */
  #filter(node: Node, environment: Environment): Value {
    const filter = node["filter"] as Node;
    const name = String(((filter["callee"] as Node | undefined) ?? filter)["value"]);
    const given = this.evaluate(node["operand"] as Node, environment);
    const apply = (of: Value): Value => super.evaluate({ ...node, operand: { type: "Evaluated", of } }, environment);
    if (name === "tojson") {
      const texts: string[] = [];
      // A private-use character and a noncharacter, which no text has beside each other.
      const mark = "\ue000\ufdd0";
      const text = apply(withMarks(given, mark, texts)).value as string;
      const json = text.replace(new RegExp(`"${mark}(\\d+)${mark}"`, "g"), (_, at: string) => texts[Number(at)]);
      return this.#make("StringLiteral", json, environment);
    }
    if (name === "capitalize" && given.type === "StringValue")
      return this.#make("StringLiteral", textMethods["capitalize"](given.value as string, []), environment);
    if (given.type !== "StringValue" || filter.type !== "Identifier" || !characterFilters.has(name))
      return apply(given);
    const letters = Array.from(given.value as string);
    if (name === "reverse") return this.#make("StringLiteral", letters.reverse().join(""), environment);
    if (name === "count") return this.#make("IntegerLiteral", letters.length, environment);
    return apply(
      this.#make(
        "ArrayLiteral",
        letters.map((value) => ({ type: "StringLiteral", value })),
        environment,
      ),
    );
  }

  /** A call; of a method of a text by our table where it has one. */
  #call(node: Node, environment: Environment): Value {
    const callee = node["callee"] as Node;
    if (callee.type !== "MemberExpression" || callee["computed"] === true) return super.evaluate(node, environment);
    const object = this.evaluate(callee["object"] as Node, environment);
    const name = String((callee["property"] as Node)["value"]);
    const args = node["args"] as Node[];
    if (object.type === "StringValue" && Object.hasOwn(textMethods, name)) {
      if (args.some(({ type }) => /^(Keyword|Spread)/.test(type)))
        throw new ModelError(`it calls ${name}() with named arguments, which is not supported`);
      const made = textMethods[name](
        object.value as string,
        args.map((one) => this.evaluate(one, environment)),
      );
      const kinds = { string: "StringLiteral", number: "IntegerLiteral", boolean: "Identifier" } as const;
      const kind = kinds[typeof made as keyof typeof kinds];
      return this.#make(kind, typeof made === "boolean" ? String(made) : made, environment);
    }
    const known = { ...callee, object: { type: "Evaluated", of: object } };
    return super.evaluate({ ...node, callee: known }, environment);
  }

  #binary(node: Node, environment: Environment): Value {
    const operator = (node["operator"] as { value: string }).value;
    if (operator === "and" || operator === "or") return super.evaluate(node, environment);
    const left = this.evaluate(node["left"] as Node, environment);
    const right = this.evaluate(node["right"] as Node, environment);
    if (operator === "~") return this.#make("StringLiteral", printed(left) + printed(right), environment);
    if (operator === "==" || operator === "!=") {
      const name = equal(left, right) === (operator === "==") ? "true" : "false";
      return this.#make("Identifier", name, environment);
    }
    if (operator === "%" && isNumber(left) && isNumber(right)) {
      const [a, b] = [Number(left.value), Number(right.value)];
      if (b === 0) throw new ModelError("it divides by zero");
      const isFloat = left.type === "FloatValue" || right.type === "FloatValue";
      // The sign of a remainder is that of the divisor.
      return this.#make(isFloat ? "FloatLiteral" : "IntegerLiteral", a - b * Math.floor(a / b), environment);
    }
    if (operator === "+" && (left.type === "StringValue") !== (right.type === "StringValue")) {
      const other = left.type === "StringValue" ? right : left;
      throw new ModelError(
        `it adds ${shown(other).slice(0, 80)} to a text; give messages whose content is a text, as the template expects`,
      );
    }
    const operand = (of: Value): Node => ({ type: "Evaluated", of });
    return super.evaluate({ ...node, left: operand(left), right: operand(right) }, environment);
  }
}

const pad = (value: number): string => String(value).padStart(2, "0");
const nameIn = (date: Date, options: Intl.DateTimeFormatOptions): string =>
  new Intl.DateTimeFormat("en-US", options).format(date);
/** Parts of a date that templates ask for. */
const dateParts: Readonly<Record<string, (now: Date) => string>> = {
  Y: (now) => String(now.getFullYear()),
  y: (now) => pad(now.getFullYear() % 100),
  m: (now) => pad(now.getMonth() + 1),
  d: (now) => pad(now.getDate()),
  H: (now) => pad(now.getHours()),
  I: (now) => pad(now.getHours() % 12 || 12),
  M: (now) => pad(now.getMinutes()),
  S: (now) => pad(now.getSeconds()),
  p: (now) => (now.getHours() < 12 ? "AM" : "PM"),
  B: (now) => nameIn(now, { month: "long" }),
  b: (now) => nameIn(now, { month: "short" }),
  A: (now) => nameIn(now, { weekday: "long" }),
  a: (now) => nameIn(now, { weekday: "short" }),
  "%": () => "%",
};

/** Renders a template with variables. */
export function renderTemplate(text: string, variables: Readonly<Record<string, unknown>>): string {
  const tokens: { type: string; value: string }[] = tokenize(text, { lstrip_blocks: true, trim_blocks: true });
  // The library reads 1e3 as two values.
  const wrong = tokens.findIndex(({ type }, i) => type === "NumericLiteral" && tokens[i + 1]?.type === "Identifier");
  if (wrong >= 0 && /^e\d*$/i.test(tokens[wrong + 1].value))
    throw new ModelError(`the number ${tokens[wrong].value}${tokens[wrong + 1].value} has an exponent; write it out`);
  const program = markPrinted(parse(tokens as never) as Node);
  const environment = new Environment();
  const constants = { false: false, true: true, none: null, False: false, True: true, None: null };
  const functions = {
    raise_exception(message: string): never {
      throw new ModelError(message);
    },
    range(start: number, stop?: number, step = 1): number[] {
      const [from, to] = stop === undefined ? [0, start] : [start, stop];
      if (step === 0) throw new ModelError("range() has a step of 0");
      return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, i) => from + i * step);
    },
    strftime_now: (format: string): string =>
      format.replace(/%(.)/g, (whole, part: string) => dateParts[part]?.(new Date()) ?? whole),
  };
  for (const [name, value] of Object.entries({ ...constants, ...functions, ...variables }))
    environment.set(name, value);
  return printed(new PythonRules(environment).run(program));
}
