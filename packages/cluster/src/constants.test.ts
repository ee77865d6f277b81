// Constant arguments: each rank receives its shard, and values of the wrong size are rejected.
import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "@weft/core/internal/ops";
import { Mesh, Placement } from "@weft/core/internal/shard";
import type { Connection } from "./connection.js";
import { decodeConstants, scatterConstants } from "./constants.js";
import { ExecutableCache } from "./executable-cache.js";
import { decode, encode, type FromClient, fromClient } from "./protocol.js";

const value = { shape: [3, 2], dtype: "float64", data: Float64Array.of(1, 2, 3, 4, 5, 6) } as const;
const mesh = Mesh.of({ d: 2 });

test("every rank receives and decodes its own rows", () => {
  const placements = [Placement.replicated(mesh, 0), Placement.split(mesh, value.shape, { 0: "d" })];
  const encoded = scatterConstants(new Map([[1, value]]), placements);
  const rows = placements[1].dims[0]!.bounds;
  const found = encoded.map((list, rank) => {
    const own = build.input([rows[rank + 1] - rows[rank], 2], "float64");
    const read = decodeConstants({ params: [build.input([], "float64"), own], outputs: [own] }, list);
    return Array.from(read.get(1)!.data as Float64Array);
  });
  assert.deepEqual(found.flat(), [1, 2, 3, 4, 5, 6]);
  assert.ok(found.every((part) => part.length > 0));
  assert.deepEqual(scatterConstants(new Map(), placements), []);
});

test("values of the wrong size are rejected", () => {
  const own = build.input([2, 2], "float64");
  const fn = { params: [own], outputs: [own] };
  const text = Buffer.from(value.data.buffer).toString("base64");
  for (const param of [0, 5])
    assert.throws(() => decodeConstants(fn, [{ param, data: text }]), /the value of argument \d has the wrong size/);
});

test("constant arguments are part of the define message, as the protocol validates it", () => {
  const sent: FromClient[] = [];
  const place = { process: { host: "here", pid: 1 }, data: { host: "localhost", port: 1, tls: false } };
  const workers = [{ id: "w1", threads: 1, rates: null, accelerator: null, mpi: null, ...place }];
  const connection = { workers, generation: 1, address: "nowhere", send: (message: FromClient) => sent.push(message) };
  const x = build.input([3, 2], "float64");
  const fn = { params: [x], outputs: [build.binary("add", x, x)] };
  const cache = new ExecutableCache(connection as unknown as Connection);
  cache.for({ fn, donated: [false], constants: new Map([[0, value]]), executables: new Map() }, [null], [1]);
  const define = decode(fromClient, encode(sent.find(({ t }) => t === "define")));
  assert.ok(define.t === "define");
  const data = Buffer.from(value.data.buffer).toString("base64");
  assert.deepEqual(define.constants, [[{ param: 0, data }]]);
});
