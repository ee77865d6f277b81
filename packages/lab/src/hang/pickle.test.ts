import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { PickleDict, PickleError, readPickle } from "./pickle.js";

/** Dicts as objects, for comparison with JSON. */
function plain(value: unknown): unknown {
  if (value instanceof PickleDict)
    return Object.fromEntries(value.entries().map(([key, inner]) => [key, plain(inner)]));
  return Array.isArray(value) ? value.map(plain) : value;
}

const python = (script: string) => spawnSync("python3", ["-c", script], { maxBuffer: 1 << 26 });
const hasPython = python("").status === 0;

const program = (protocol: number) => `
import pickle, sys, json
shared = {"name": "f", "filename": "a.py", "line": 3}
value = {"version": "2.10", "entries": [{"record_id": i, "process_group": ("0", "default_pg"), "sizes": [[i, 1 << 20]], "frames": [shared, shared],
  "big": 1 << 40, "negative": -5 - i, "float": 0.5 * i, "none": None, "yes": True, "no": False, "text": "größe" * 3} for i in range(300)],
  "empty": [{}, [], ()], "wide": list(range(3000))}
sys.stdout.buffer.write(len(json.dumps(value)).to_bytes(4, "little") + json.dumps(value).encode() + pickle.dumps(value, protocol=${protocol}))
`;

for (const protocol of [0, 1, 2, 3, 4, 5])
  test(`pickle protocol ${protocol} reads as Python wrote it`, { skip: !hasPython && "there is no python3" }, () => {
    const { stdout } = python(program(protocol));
    const length = stdout.readUInt32LE(0);
    const expected = JSON.parse(stdout.toString("utf8", 4, 4 + length));
    const pickle = stdout.subarray(4 + length);
    const { value, truncated } = readPickle(pickle);
    assert.equal(truncated, false);
    if (protocol > 0) assert.deepEqual(plain(value), expected);
    // Cut off anywhere: no exception other than PickleError, and never an endless loop.
    for (let end = 0; end < pickle.length; end += Math.ceil(pickle.length / 200)) {
      try {
        assert.equal(readPickle(pickle.subarray(0, end)).truncated, true);
      } catch (error) {
        assert.ok(error instanceof PickleError, String(error));
      }
    }
  });

test("a pickle that would execute something is refused", { skip: !hasPython && "there is no python3" }, () => {
  for (const value of [
    "__import__('os').system",
    "__import__('collections').deque([1])",
    "ValueError('x')",
    "object()",
  ]) {
    const { stdout } = python(`
import pickle, sys
class Evil:
    def __reduce__(self): return (__import__("os").system, ("true",))
sys.stdout.buffer.write(pickle.dumps(Evil() if "system" in ${JSON.stringify(value)} else ${value}, protocol=2))`);
    assert.ok(stdout.length > 0);
    assert.throws(() => readPickle(stdout), PickleError);
  }
});

test("hostile bytes end in bounded time and memory", () => {
  const attacks: Record<string, Buffer> = {
    "huge memo index": Buffer.from([0x80, 2, 0x4e, 0x72, 0xff, 0xff, 0xff, 0x7f, 0x2e]),
    "text longer than the file": Buffer.from([0x80, 2, 0x58, 0xff, 0xff, 0xff, 0x7f, 0x61]),
    "pop of nothing": Buffer.from([0x80, 2, 0x30, 0x2e]),
    "append to a number": Buffer.from([0x80, 2, 0x4b, 1, 0x4b, 2, 0x61, 0x2e]),
    "unbalanced marks": Buffer.from([0x80, 2, 0x28, 0x28, 0x74, 0x74, 0x74, 0x2e]),
    "list that contains itself": Buffer.from([0x80, 2, 0x5d, 0x71, 0, 0x68, 0, 0x61, 0x2e]),
    "a number of 4 GB": Buffer.from([0x80, 2, 0x8b, 0xff, 0xff, 0xff, 0xff, 0x2e]),
  };
  for (const [name, bytes] of Object.entries(attacks)) {
    try {
      readPickle(bytes);
    } catch (error) {
      assert.ok(error instanceof PickleError, `${name}: ${error}`);
    }
  }
  // Random bytes behind a valid beginning.
  let seed = 7;
  for (let round = 0; round < 3000; round++) {
    const bytes = Buffer.alloc(64);
    for (let i = 0; i < bytes.length; i++) {
      seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
      bytes[i] = seed >>> 16;
    }
    bytes[0] = 0x80;
    try {
      readPickle(bytes);
    } catch (error) {
      assert.ok(error instanceof PickleError, String(error));
    }
  }
});

test("dicts that repeat with other numbers read as Python wrote them", {
  skip: !hasPython && "there is no python3",
}, () => {
  // Without unused stores, as PyTorch's own pickler writes: then later dicts repeat the bytes of earlier ones.
  const { stdout } = python(`
import json, pickle, pickletools, sys
names = ["k%d" % i for i in range(12)]
frames, states = [{"line": 3}, {"line": 5}], ["scheduled", "completed"]
entries = []
for i in range(500):
    entry = {name: [i, i * 7, -i, i << 20, (1 << 40) + i, None, True, [[i % 3, 64]], "text", (1, "a"), 0.5, states[i % 2]][k] for k, name in enumerate(names)}
    entry["frames"] = frames if i % 5 else frames[:1]
    entries.append(entry)
value = {"frames": frames, "states": states, "names": names, "entries": entries}
sys.stdout.buffer.write(len(json.dumps(value)).to_bytes(4, "little") + json.dumps(value).encode() + pickletools.optimize(pickle.dumps(value, 2)))`);
  const length = stdout.readUInt32LE(0);
  const pickle = stdout.subarray(4 + length);
  const { value } = readPickle(pickle);
  assert.deepEqual(plain(value), JSON.parse(stdout.toString("utf8", 4, 4 + length)));
  const entries = (value as PickleDict).get("entries") as PickleDict[];
  assert.ok(new Set(entries.map((entry) => entry.template)).size < 40, "most entries share a template");
  for (let end = 0; end < pickle.length; end += 997) assert.equal(readPickle(pickle.subarray(0, end)).truncated, true);
});

test("a stored value that changes is not taken from an earlier dict", {
  skip: !hasPython && "there is no python3",
}, () => {
  // The same bytes twice, with another value in the store in between.
  const { stdout } = python(`
import pickle, sys, json
keys = b"".join(b"X" + bytes([1, 0, 0, 0, 97 + i]) + b"q" + bytes([2 + i]) + b"0" for i in range(10))
items = b"}(" + b"".join(b"h" + bytes([2 + i]) + b"h" + bytes([0]) for i in range(10)) + b"u"
store = lambda value: b"K" + bytes([value]) + b"q" + bytes([0]) + b"0"
data = bytes([0x80, 2]) + b"](" + keys + store(5) + items + store(6) + items + b"e."
text = json.dumps(pickle.loads(data))
sys.stdout.buffer.write(len(text).to_bytes(4, "little") + text.encode() + data)`);
  const length = stdout.readUInt32LE(0);
  const { value } = readPickle(stdout.subarray(4 + length));
  assert.deepEqual(plain(value), JSON.parse(stdout.toString("utf8", 4, 4 + length)));
});
