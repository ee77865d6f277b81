// Reader of pickles of plain data (numbers, strings, lists, tuples, dicts), as the flight recorder writes them. It cannot
// execute anything: it knows no object, and of globals only names that stand for a list or dict. Memory is bounded by the
// size of the file, and a truncated file gives the values up to its end.

import { matched, type PickleTemplate, PickleTemplates, templateOf } from "./pickle-template.js";

/** A dict: keys and values alternate. A flat list is several times faster to make than an object with 20 properties. */
export class PickleDict {
  private list: unknown[] | null;

  /** `template`: the form that this dict shares with others, which gives its items together with `numbers`. */
  constructor(
    items: unknown[] | null,
    public template: PickleTemplate | null = null,
    public numbers: readonly number[] = [],
  ) {
    this.list = items;
  }

  get items(): unknown[] {
    if (this.list === null) {
      const { items, holes } = this.template as PickleTemplate;
      this.list = items.slice();
      for (let i = 0; i < holes.length; i++) this.list[holes[i]] = this.numbers[i];
    }
    return this.list;
  }

  /** Adds keys and values. */
  add(items: unknown[]): void {
    if (this.list !== null && this.list.length === 0) this.list = items;
    else for (const item of items) this.items.push(item);
    this.template = null;
  }

  get(key: string): unknown {
    for (let i = 0; i < this.items.length; i += 2) if (this.items[i] === key) return this.items[i + 1];
    return undefined;
  }

  entries(): [unknown, unknown][] {
    const pairs: [unknown, unknown][] = [];
    for (let i = 0; i + 1 < this.items.length; i += 2) pairs.push([this.items[i], this.items[i + 1]]);
    return pairs;
  }
}

export class PickleError extends Error {}

interface PickleResult {
  value: unknown;
  /** True when the file ends before the pickle does; `value` is then undefined. */
  truncated: boolean;
  /** Values that were complete but not yet part of another one when a truncated file ended. */
  loose: unknown[];
}

/** A name that a pickle may mention, with what it builds from its argument. */
class Builder {
  constructor(readonly build: (argument: unknown) => unknown) {}
}

const same = (value: unknown) => value;
const builders: Readonly<Record<string, Builder>> = {
  "collections OrderedDict": new Builder(() => new PickleDict([])),
  "torch.jit._pickle build_intlist": new Builder(same),
  "torch.jit._pickle build_doublelist": new Builder(same),
  "torch.jit._pickle build_boollist": new Builder(same),
};

const mark = Symbol("mark");
/** Decimal digits of a number in the text opcodes of protocol 0. */
const longestLine = 4096;

/** Reads one pickle. Throws PickleError for anything but plain data. */
export function readPickle(bytes: Buffer): PickleResult {
  const end = bytes.length;
  let at = 0;
  // A stack with its own pointer: changing the length of an array costs more than the rest of an opcode.
  const stack: unknown[] = [];
  let height = 0;
  const marks: number[] = [];
  /** Positions behind the bytes of the marks. */
  const markEnds: number[] = [];
  const memo: unknown[] = [];
  const templates = new PickleTemplates();
  /** Values stored so far: a dict that stored one is no template. */
  let stores = 0;
  const storesAtMark: number[] = [];

  const fail = (why: string): never => {
    throw new PickleError(`byte ${at}: ${why}`);
  };
  const cut = (): PickleResult => ({
    value: undefined,
    truncated: true,
    loose: stack.slice(0, height).filter((value) => value !== mark),
  });
  const pop = (): unknown => {
    if (height === 0 || stack[height - 1] === mark) fail("a value is missing");
    return stack[--height];
  };
  // Not `stack[height++] = pop()`: the place would be chosen before the value is taken off.
  const push = (value: unknown) => {
    stack[height++] = value;
  };
  const popMark = (): unknown[] => {
    const place = marks.pop();
    markEnds.pop();
    storesAtMark.pop();
    if (place === undefined || place >= height) return fail("a mark is missing");
    const items = stack.slice(place + 1, height);
    height = place;
    return items;
  };
  const top = (): unknown => stack[height - 1];
  const put = (index: number, value: unknown) => {
    // Every index of a real pickle is smaller than its number of bytes.
    if (!(index >= 0 && index <= end)) fail(`memo index ${index} is larger than any of a pickle of this size`);
    stores++;
    if (index < memo.length) templates.clear();
    // Filled in order, so that the array stays dense.
    while (memo.length < index) memo.push(undefined);
    memo[index] = value;
  };
  const get = (index: number) => {
    if (!(index >= 0 && index < memo.length)) fail(`memo index ${index} was never stored`);
    stack[height++] = memo[index];
  };
  const line = (): string => {
    const stop = bytes.indexOf(10, at);
    if (stop < 0 || stop - at > longestLine) return fail("a line of text does not end");
    const text = bytes.toString("utf8", at, stop);
    at = stop + 1;
    return text;
  };
  const global = (module: unknown, name: unknown) => {
    const builder = builders[`${String(module)} ${String(name)}`];
    if (builder === undefined)
      return fail(
        `it names ${String(module).slice(0, 80)}.${String(name).slice(0, 80)}, which plain data never does; not read`,
      );
    stack[height++] = builder;
  };
  const setItems = (items: unknown[]) => {
    const dict = top();
    if (!(dict instanceof PickleDict) || items.length % 2 !== 0) return fail("items for something that is not a dict");
    dict.add(items);
  };
  const addAll = (items: unknown[]) => {
    const list = top();
    if (!Array.isArray(list)) return fail("items for something that is not a list");
    for (let i = 0; i < items.length; i++) list.push(items[i]);
  };

  for (;;) {
    if (at >= end) return cut();
    const code = bytes[at++];
    switch (code) {
      case 0x68: // BINGET
        if (at >= end) return cut();
        if (bytes[at] < memo.length) stack[height++] = memo[bytes[at++]];
        else get(bytes[at]);
        break;
      case 0x6a: {
        // LONG_BINGET
        if (at + 4 > end) return cut();
        const index = (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;
        at += 4;
        if (index < memo.length) stack[height++] = memo[index];
        else get(index);
        break;
      }
      case 0x71: // BINPUT
        if (at >= end) return cut();
        put(bytes[at++], top());
        break;
      case 0x72: {
        // LONG_BINPUT
        if (at + 4 > end) return cut();
        const index = (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;
        at += 4;
        if (index === memo.length) {
          memo.push(stack[height - 1]);
          stores++;
        } else put(index, top());
        break;
      }
      case 0x94: // MEMOIZE
        put(memo.length, top());
        break;
      case 0x4a: // BININT
        if (at + 4 > end) return cut();
        stack[height++] = bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
        at += 4;
        break;
      case 0x4b: // BININT1
        if (at >= end) return cut();
        stack[height++] = bytes[at++];
        break;
      case 0x4d: // BININT2
        if (at + 2 > end) return cut();
        stack[height++] = bytes[at] | (bytes[at + 1] << 8);
        at += 2;
        break;
      case 0x8a: // LONG1
      case 0x8b: {
        // LONG4
        if (at + (code === 0x8a ? 1 : 4) > end) return cut();
        const length = code === 0x8a ? bytes[at] : bytes.readUInt32LE(at);
        at += code === 0x8a ? 1 : 4;
        if (length > 256) fail(`a whole number of ${length} bytes`);
        if (at + length > end) return cut();
        stack[height++] = wholeNumber(bytes, at, length);
        at += length;
        break;
      }
      case 0x47: // BINFLOAT
        if (at + 8 > end) return cut();
        stack[height++] = bytes.readDoubleBE(at);
        at += 8;
        break;
      case 0x58: // BINUNICODE
      case 0x54: // BINSTRING
      case 0x42: // BINBYTES
      case 0x8c: // SHORT_BINUNICODE
      case 0x55: // SHORT_BINSTRING
      case 0x43: // SHORT_BINBYTES
      case 0x8d: // BINUNICODE8
      case 0x8e: {
        // BINBYTES8
        const width = code === 0x8c || code === 0x55 || code === 0x43 ? 1 : code >= 0x8d ? 8 : 4;
        if (at + width > end) return cut();
        const length =
          width === 1 ? bytes[at] : bytes.readUInt32LE(at) + (width === 8 ? bytes.readUInt32LE(at + 4) * 2 ** 32 : 0);
        at += width;
        if (at + length > end) return cut();
        stack[height++] = bytes.toString("utf8", at, at + length);
        at += length;
        break;
      }
      case 0x28: // MARK
        marks.push(height);
        markEnds.push(at);
        storesAtMark.push(stores);
        stack[height++] = mark;
        break;
      case 0x7d: // EMPTY_DICT
        // EMPTY_DICT and MARK, the items, and SETITEMS
        if (bytes[at] === 0x28) {
          const template = templates.find(bytes, at + 1);
          if (template !== null && bytes[matched.end] === 0x75) {
            stack[height++] = new PickleDict(null, template, matched.numbers);
            at = matched.end + 1;
            break;
          }
        }
        stack[height++] = new PickleDict([]);
        break;
      case 0x5d: // EMPTY_LIST
      case 0x29: // EMPTY_TUPLE
      case 0x8f: // EMPTY_SET
        stack[height++] = [];
        break;
      case 0x75: {
        // SETITEMS
        const start = markEnds.at(-1) ?? 0;
        const stored = storesAtMark.at(-1) !== stores;
        const items = popMark();
        setItems(items);
        const dict = top() as PickleDict;
        if (stored || start < 2 || bytes[start - 2] !== 0x7d || dict.items !== items) break;
        const template = templateOf(bytes, start, at - 1, items);
        if (template === null) break;
        templates.add(template);
        dict.template = template;
        dict.numbers = template.holes.map((hole) => items[hole] as number);
        break;
      }
      case 0x73: {
        // SETITEM
        const value = pop();
        setItems([pop(), value]);
        break;
      }
      case 0x64: {
        // DICT
        const items = popMark();
        if (items.length % 2 !== 0) fail("a key without a value");
        stack[height++] = new PickleDict(items);
        break;
      }
      case 0x65: // APPENDS
      case 0x90: // ADDITEMS
        addAll(popMark());
        break;
      case 0x61: // APPEND
        addAll([pop()]);
        break;
      case 0x74: // TUPLE
      case 0x6c: // LIST
        push(popMark());
        break;
      case 0x85: // TUPLE1
        push([pop()]);
        break;
      case 0x86: {
        // TUPLE2
        const second = pop();
        push([pop(), second]);
        break;
      }
      case 0x87: {
        // TUPLE3
        const third = pop();
        const second = pop();
        push([pop(), second, third]);
        break;
      }
      case 0x4e: // NONE
        stack[height++] = null;
        break;
      case 0x88: // NEWTRUE
        stack[height++] = true;
        break;
      case 0x89: // NEWFALSE
        stack[height++] = false;
        break;
      case 0x80: // PROTO
        at++;
        break;
      case 0x95: // FRAME
        at += 8;
        break;
      case 0x30: // POP
        pop();
        break;
      case 0x31: // POP_MARK
        popMark();
        break;
      case 0x32: {
        // DUP
        const value = pop();
        stack[height++] = value;
        stack[height++] = value;
        break;
      }
      case 0x49: {
        // INT
        const text = line();
        stack[height++] = text === "01" ? true : text === "00" ? false : Number(text);
        break;
      }
      case 0x4c: // LONG
        push(Number(line().replace(/L$/, "")));
        break;
      case 0x46: // FLOAT
        push(Number(line()));
        break;
      case 0x56: // UNICODE
      case 0x53: // STRING
        push(line().replace(/^'(.*)'$/, "$1"));
        break;
      case 0x70: // PUT
        put(Number(line()), top());
        break;
      case 0x67: // GET
        get(Number(line()));
        break;
      case 0x63: // GLOBAL
        global(line(), line());
        break;
      case 0x93: {
        // STACK_GLOBAL
        const name = pop();
        global(pop(), name);
        break;
      }
      case 0x52: {
        // REDUCE
        const argument = pop();
        const builder = pop();
        if (!(builder instanceof Builder)) return fail("a call of something that is not a list or dict");
        push(builder.build(Array.isArray(argument) ? argument[0] : undefined));
        break;
      }
      case 0x2e: {
        // STOP
        const value = pop();
        return { value, truncated: false, loose: [] };
      }
      default:
        fail(`opcode 0x${code.toString(16)} makes objects; only plain data is read`);
    }
    if (at > end) return cut();
  }
}

/** A little-endian two's complement number as a double: times of a dump lose less than a microsecond. */
function wholeNumber(bytes: Buffer, at: number, length: number): number {
  if (length === 0) return 0;
  if (length === 8) return bytes.readInt32LE(at + 4) * 2 ** 32 + bytes.readUInt32LE(at);
  let value = 0;
  for (let i = length - 1; i >= 0; i--) value = value * 256 + bytes[at + i];
  return bytes[at + length - 1] >= 128 ? value - 256 ** length : value;
}
