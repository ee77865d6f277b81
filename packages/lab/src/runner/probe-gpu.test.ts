// The probe on GPUs without one: readings of a stand-in for NVML's library that this test compiles, and training steps that
// are replays of a graph.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { recordSchema, unknownFields } from "@weft/formats/internal";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { probeEnvironment } from "./probe.js";

const has = (command: string): boolean => spawnSync(command, ["--version"]).status === 0;
const skip = !has("python3") || !has("cc") ? "there is no python3 or no cc here" : false;

/** NVML as its documentation declares it; the energy grows by 250 J with every reading, and there is no memory clock. */
const library = `
#include <string.h>
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
static unsigned long long energy = 1000000;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) { *handle = (void *)8; return strcmp(uuid, "GPU-abc") ? 6 : 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)8; return 0; }
int nvmlDeviceGetIndex(void *device, unsigned *index) { *index = 3; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, Utilization *use) { use->gpu = 91; use->memory = 17; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, Memory *m) { m->total = 8ull << 30; m->used = 5ull << 30; m->free = 3ull << 30; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 692897; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) { *mj = energy += 250000; return 0; }
int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *mhz) { *mhz = 1590; return kind == 1 ? 0 : 3; }
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) { *celsius = 58; return 0; }
`;

const program = `
import types, weft_probe, weft_probe_cuda, time
class CUDAGraph:
    def capture_begin(self): pass
    def capture_end(self): pass
    def replay(self): return "ran"
steps, captures = [], []
weft_probe_cuda.watch_graphs(types.SimpleNamespace(CUDAGraph=CUDAGraph), lambda: captures.append(1), lambda: steps.append(1))
training, inference = CUDAGraph(), CUDAGraph()
training.capture_begin()
weft_probe_cuda.note_captured_update()
training.capture_end()
inference.capture_begin(); inference.capture_end()
assert len(captures) == 2, captures
assert training.replay() == inference.replay() == "ran"
training.replay()
assert len(steps) == 2, steps
weft_probe_cuda._period = 0.05
weft_probe_cuda.start_sampling("abc", 0)
for i in range(4):
    with weft_probe.step(samples=1):
        time.sleep(0.05)
`;

test("NVML is sampled, energy is counted per step, and replays of a graph with an update are steps", { skip }, () => {
  using folder = new TestFolder();
  const source = folder.file("nvml.c", library);
  const made = spawnSync("cc", ["-shared", "-fPIC", "-o", join(folder.path, "libnvidia-ml.so.1"), source]);
  assert.equal(made.status, 0, String(made.stderr));
  const home = join(folder.path, "run");
  mkdirSync(home);
  const environment = { ...process.env, ...probeEnvironment(home, {}), LD_LIBRARY_PATH: folder.path };
  const done = spawnSync("python3", ["-c", program], { encoding: "utf8", env: environment });
  assert.equal(done.status, 0, done.stderr);
  const records = readFileSync(join(home, "rank0.jsonl"), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  for (const record of records) {
    assert.ok(recordSchema.safeParse(record).success, JSON.stringify(record));
    assert.deepEqual(unknownFields(recordSchema, record), []);
  }
  const samples = records.filter((record) => record.type === "sample");
  assert.ok(samples.length >= 1);
  const { energyJoules, ...reading } = samples[0].devices[0];
  assert.deepEqual(reading, {
    index: 3,
    utilizationPercent: 91,
    memoryActivePercent: 17,
    memoryUsedBytes: 5 * 2 ** 30,
    memoryTotalBytes: 8 * 2 ** 30,
    powerWatts: 692.897,
    smClockMHz: 1590,
    temperatureC: 58,
  });
  assert.equal(energyJoules % 250, 0);
  const facts = Object.assign({}, ...records.flatMap((record) => (record.type === "facts" ? [record.facts] : [])));
  assert.equal(facts.energyJoules % 250, 0);
  assert.equal(facts.energyJoulesPerStep, facts.energyJoules / 4);
  assert.equal(facts.probeErrors, undefined);
});
