// What the probe costs a PyTorch training loop. One process, epochs with the probe awake and asleep in turn, so that the
// machine's moods fall on both alike; the cost is the difference of their fastest quarters, which other work on the machine
// disturbs least, in processor time of the training thread. Writes bench/results/probe.json.
//   node bench/probe.mjs        (WEFT_TORCH_PYTHON names a Python with torch; default: the tests' virtual environment)
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const venvs = process.env.WEFT_VENVS ?? join(homedir(), ".cache/weft/venvs");
const python = process.env.WEFT_TORCH_PYTHON ?? join(venvs, "torch/bin/python");

const script = `
import json, statistics, sys, time
import torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
import weft_probe
torch.manual_seed(0); torch.set_num_threads(1)
hidden, batches, epochs = int(sys.argv[1]), 20, 204 if int(sys.argv[1]) < 1000 else 84
x = torch.randn(64 * batches, 128)
loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(128, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder = weft_probe.recorder.folder
times = {True: [], False: []}
for epoch in range(epochs):
    awake = epoch % 2 == 0
    weft_probe.recorder.folder = folder if awake else None
    began = time.thread_time()
    for a, b in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        optimizer.step()
    if epoch >= 4:
        times[awake].append((time.thread_time() - began) / batches * 1e6)
weft_probe.recorder.folder = folder
print(json.dumps({"with": times[True], "without": times[False], "torch": torch.__version__}))
`;

if (!existsSync(python)) {
  console.log(`${python} is not here: set WEFT_TORCH_PYTHON to a Python with torch`);
  process.exit(1);
}
const fastest = (values) => {
  const quarter = [...values].sort((a, b) => a - b).slice(0, values.length >> 2);
  return quarter.reduce((a, b) => a + b, 0) / quarter.length;
};
const result = {
  benchmark: "probe",
  when: new Date().toISOString(),
  machine: { cpu: cpus()[0]?.model, cores: cpus().length },
  versions: { node: process.version },
  sizes: [],
};
for (const hidden of [64, 512, 1024]) {
  const folder = mkdtempSync(join(tmpdir(), "weft-probe-"));
  try {
    const env = { ...process.env, PYTHONPATH: join(root, "packages/lab/probe"), WEFT_PROBE_DIR: folder };
    const done = spawnSync(python, ["-W", "ignore", "-c", script, String(hidden)], { encoding: "utf8", env });
    if (done.status !== 0) throw new Error(done.stderr);
    const sample = JSON.parse(done.stdout.trim().split("\n").pop());
    const without = fastest(sample.without);
    const cost = fastest(sample.with) - without;
    result.versions.torch = sample.torch;
    result.sizes.push({ hidden, stepUs: without, costUs: cost, costPercent: (100 * cost) / without, samples: sample });
    console.log(`step of ${without.toFixed(0)} us: ${cost.toFixed(1)} us, ${((100 * cost) / without).toFixed(2)}%`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
mkdirSync(join(root, "bench/results"), { recursive: true });
writeFileSync(join(root, "bench/results/probe.json"), `${JSON.stringify(result, null, 1)}\n`);
