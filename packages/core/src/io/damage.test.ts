// Damages every byte of a file in turn: the reader must throw, or give the same result.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FileError } from "./file.js";
import type { HostArray } from "./host.js";
import { readNpz, writeNpz } from "./npz.js";
import { readSafetensors, writeSafetensors } from "./safetensors.js";
import { assertSameArray, sample, scratchFolder } from "./testkit.js";

const folder = scratchFolder();
const arrays = { first: sample("float32", [3]), second: sample("int64", [2, 1]) };

/** Calls back with what each damaged file gives, or null where it is refused. Returns how many are refused. */
async function damageEveryByte(
  path: string,
  read: (path: string) => Promise<Record<string, HostArray>>,
  check: (read: Record<string, HostArray>, position: number) => void,
): Promise<number> {
  const whole = readFileSync(path);
  let refused = 0;
  for (let position = 0; position < whole.length; position++)
    for (const flip of [0x01, 0x80, 0xff]) {
      const damaged = Buffer.from(whole);
      damaged[position] ^= flip;
      writeFileSync(path, damaged);
      try {
        check(await read(path), position);
      } catch (error) {
        assert.ok(error instanceof FileError, `byte ${position} ^ ${flip}: ${String(error)}`);
        refused++;
      }
    }
  return refused / (3 * whole.length);
}

test("a damaged .npz file never gives a wrong number", async () => {
  for (const compress of [false, true]) {
    const path = join(folder, `${compress}.npz`);
    await writeNpz(path, arrays, { compress });
    const refused = await damageEveryByte(path, readNpz, (read, position) => {
      for (const [name, expected] of Object.entries(arrays)) {
        assert.ok(name in read, `byte ${position}: ${name} is lost`);
        assertSameArray(read[name], expected);
      }
    });
    assert.ok(refused > 0.7, `only ${refused} of the damage was noticed`);
  }
});

test("a damaged .safetensors file gives the same layout or an error", async () => {
  const path = join(folder, "a.safetensors");
  await writeSafetensors(path, arrays);
  const whole = readFileSync(path);
  const dataStart = 8 + Number(whole.readBigUInt64LE(0));
  await damageEveryByte(path, readSafetensors, (read, position) => {
    const total = Object.values(read).reduce((sum, array) => sum + array.data.byteLength, 0);
    assert.equal(total, 12 + 16);
    if (position < dataStart) return;
    assert.deepEqual(Object.keys(read).sort(), ["first", "second"]);
  });
});
