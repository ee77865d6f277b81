// Shared memory on its own: blocks that do not overlap, come back whole, and consist of large pages where they are large.
import assert from "node:assert/strict";
import { release } from "node:os";
import { test } from "node:test";
import { CpuDevice } from "../cpu/index.js";
import { arena, groupLibrary } from "./index.js";

const skip = CpuDevice.available() ? false : "no C compiler";
const page = 2 << 20;
const [major, minor] = release().split(".").map(Number);

test("blocks of all sizes keep what was written, and freed ones come back", { skip }, () => {
  const library = groupLibrary();
  const before = arena.used();
  const sizes = [100, 4096, page - 1, page, 3 * page + 5, 4096, page + page / 2, 7, 2 * page];
  const blocks = sizes.map((bytes, i) => {
    const address = arena.allocate(bytes);
    assert.ok(address > 0);
    if (bytes >= page) assert.equal(address % page, 0, "large blocks begin with a large page");
    library.copyIn(address, new Uint8Array(bytes).fill(i + 1), bytes);
    return address;
  });
  // A hole in the middle is used again, for small blocks too.
  assert.ok(arena.free(blocks[3]));
  blocks[3] = arena.allocate(page);
  library.copyIn(blocks[3], new Uint8Array(page).fill(4), page);
  sizes.forEach((bytes, i) => {
    const copy = new Uint8Array(bytes);
    library.copyOut(copy, blocks[i], bytes);
    assert.ok(
      copy.every((x) => x === i + 1),
      `block ${i}`,
    );
  });
  assert.equal(arena.free(blocks[0] + 8), false);
  for (const address of blocks) assert.ok(arena.free(address));
  assert.equal(arena.free(blocks[0]), false);
  assert.equal(arena.used(), before);
});

test("large blocks have large pages where the system can give them", {
  skip:
    skip || (major > 6 || (major === 6 && minor >= 1) ? false : `Linux ${release()} cannot be asked for large pages`),
}, (t) => {
  const library = groupLibrary();
  const count = (): number => Number(library.hugePages());
  const before = count();
  const address = arena.allocate(8 * page);
  const got = count() - before;
  const again = new Uint8Array(8 * page);
  library.copyOut(again, address, again.length);
  assert.ok(
    again.every((x) => x === 0),
    "new memory is empty",
  );
  arena.free(address);
  if (got === 0) t.skip("this system refuses large pages for shared memory");
  else assert.ok(got >= 6 && got <= 8, `${got} of 8`);
});
