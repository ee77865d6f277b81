// Reads Python pickles as data. Nothing is executed: classes and functions that a pickle names become descriptions
// ({ global, args, state }), and whoever reads them decides which are known. Size, depth and memory are bounded.
import { WeftError } from "@weft/core/internal/graph";

/** A class or function that a pickle names, called with `args`, with the state that was set afterwards. */
export class PickledObject {
  state: unknown = null;
  constructor(
    readonly global: string,
    readonly args: readonly unknown[],
  ) {}
}

/** A name of a class or function. */
class Global {
  constructor(readonly name: string) {}
}

const mark = Symbol("mark");
/** Largest number of values in a pickle. */
const maxValues = 10_000_000;
const maxDepth = 10_000;

const fail = (what: string): never => {
  throw new WeftError(`pickle: ${what}`);
};

/**
 * The value of a pickle: numbers, texts, bytes, lists, maps, null, booleans, and `PickledObject` for everything else.
 *
 * @param bytes - Content of the file.
 */
export function readObjectPickle(bytes: Uint8Array): unknown {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const stack: unknown[] = [];
  const memo: unknown[] = [];
  const text = new TextDecoder("utf-8", { fatal: true });
  let [at, values] = [0, 0];

  const take = (n: number): number => {
    if (!(n >= 0) || at + n > bytes.length) fail(`ends in the middle of a value at byte ${at}`);
    at += n;
    return at - n;
  };
  const push = (x: unknown): void => {
    if (++values > maxValues || stack.length > maxDepth) fail("holds too many values");
    stack.push(x);
  };
  const pop = (): unknown => {
    if (stack.length === 0 || stack[stack.length - 1] === mark) fail(`is damaged at byte ${at}`);
    return stack.pop();
  };
  const popMark = (): unknown[] => {
    const from = stack.lastIndexOf(mark);
    if (from < 0) fail(`is damaged at byte ${at}`);
    const items = stack.splice(from);
    return items.slice(1);
  };
  const top = (): unknown => stack[stack.length - 1];
  const line = (): string => {
    const end = bytes.indexOf(10, at);
    if (end < 0) fail("ends in the middle of a line");
    const found = text.decode(bytes.subarray(at, end));
    at = end + 1;
    return found;
  };
  const slice = (n: number): Uint8Array => bytes.slice(take(n), at);
  const length8 = (): number => {
    const n = view.getBigUint64(take(8), true);
    return n > BigInt(bytes.length) ? fail("names a length beyond its end") : Number(n);
  };
  const utf8 = (n: number): string => text.decode(slice(n));
  const remember = (index: number, x: unknown): void => {
    if (index > maxValues) fail("has a memo that is too large");
    memo[index] = x;
  };
  const recall = (index: number): unknown =>
    index in memo ? memo[index] : fail(`refers to the unknown value ${index}`);
  const long = (n: number): number => {
    const raw = slice(n);
    let value = 0n;
    raw.forEach((byte, k) => {
      value += BigInt(byte) << BigInt(8 * k);
    });
    if (n > 0 && raw[n - 1] > 127) value -= 1n << BigInt(8 * n);
    return Number(value);
  };
  const pairs = (items: readonly unknown[], into: unknown): void => {
    if (!(into instanceof Map) || items.length % 2 !== 0) return void fail(`is damaged at byte ${at}`);
    for (let k = 0; k < items.length; k += 2) into.set(items[k], items[k + 1]);
  };
  const appended = (items: readonly unknown[], into: unknown): void => {
    if (!Array.isArray(into)) return void fail(`is damaged at byte ${at}`);
    for (const item of items) into.push(item);
  };
  const call = (callee: unknown, args: unknown): PickledObject =>
    callee instanceof Global && Array.isArray(args)
      ? new PickledObject(callee.name, args)
      : fail(`calls something that is no function at byte ${at}`);
  const asText = (x: unknown): string => (typeof x === "string" ? x : fail(`is damaged at byte ${at}`));

  const opcodes: Record<number, () => void> = {
    128: () => void (bytes[take(1)] > 5 && fail("has an unknown protocol")),
    149: () => void take(8),
    40: () => push(mark),
    41: () => push([]),
    93: () => push([]),
    125: () => push(new Map()),
    143: () => push([]),
    116: () => push(popMark()),
    108: () => push(popMark()),
    133: () => push([pop()]),
    134: () => push([pop(), pop()].reverse()),
    135: () => push([pop(), pop(), pop()].reverse()),
    97: () => {
      const item = pop();
      appended([item], top());
    },
    101: () => {
      const items = popMark();
      appended(items, top());
    },
    144: () => {
      const items = popMark();
      appended(items, top());
    },
    115: () => {
      const items = [pop(), pop()].reverse();
      pairs(items, top());
    },
    117: () => {
      const items = popMark();
      pairs(items, top());
    },
    100: () => {
      const map = new Map();
      pairs(popMark(), map);
      push(map);
    },
    78: () => push(null),
    136: () => push(true),
    137: () => push(false),
    75: () => push(bytes[take(1)]),
    77: () => push(view.getUint16(take(2), true)),
    74: () => push(view.getInt32(take(4), true)),
    71: () => push(view.getFloat64(take(8), false)),
    138: () => push(long(bytes[take(1)])),
    73: () => push(Number(line())),
    70: () => push(Number(line())),
    140: () => push(utf8(bytes[take(1)])),
    88: () => push(utf8(view.getUint32(take(4), true))),
    141: () => push(utf8(length8())),
    67: () => push(slice(bytes[take(1)])),
    66: () => push(slice(view.getUint32(take(4), true))),
    142: () => push(slice(length8())),
    150: () => push(slice(length8())),
    148: () => remember(memo.length, top()),
    113: () => remember(bytes[take(1)], top()),
    114: () => remember(view.getUint32(take(4), true), top()),
    104: () => push(recall(bytes[take(1)])),
    106: () => push(recall(view.getUint32(take(4), true))),
    48: () => void pop(),
    50: () => push(top()),
    99: () => {
      const module = line();
      push(new Global(`${module}.${line()}`));
    },
    147: () => {
      const name = asText(pop());
      push(new Global(`${asText(pop())}.${name}`));
    },
    82: () => {
      const args = pop();
      push(call(pop(), args));
    },
    129: () => {
      const args = pop();
      push(call(pop(), args));
    },
    98: () => {
      const state = pop();
      const object = top();
      if (!(object instanceof PickledObject)) return void fail(`is damaged at byte ${at}`);
      object.state = state;
    },
  };

  for (;;) {
    const code = bytes[take(1)];
    if (code === 0x2e) break;
    const operation = opcodes[code];
    if (operation === undefined) fail(`has an unknown opcode 0x${code.toString(16)} at byte ${at - 1}`);
    operation();
  }
  if (stack.length !== 1) fail("does not end with one value");
  return stack[0];
}
