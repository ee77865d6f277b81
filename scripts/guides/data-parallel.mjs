// Rows of the guide on data-parallel training of text classifiers.

/** Traces are stored compressed. */
const unpack = (...names) => names.map((name) => `node unpack.mjs ${name}`).join(" && ");
const twoRanks = `${unpack("torch213_gloo_ddp_w2_rank0", "torch213_gloo_ddp_w2_rank1")} && weft trace torch213_gloo_ddp_w2_rank*.json`;
/** Epoch times of a study in which two devices are slower, with counted steps. */
const epochs = (seconds, steps) =>
  [
    "epoch,train_loss,train_time,val_loss,val_acc,steps",
    ...[1, 2, 3, 4, 5, 6].map((epoch) => `${epoch},0.5,${seconds + epoch / 100},0.5,0.8,${steps}`),
  ].join("\n");
const loaders =
  "weft scale --devices 1,2 --out study-loaders --no-pictures -- torchrun --standalone --nproc_per_node={n} loaders.py";

const analyze = "weft analyze experiments/ --out report";
const has = (file) => `${analyze} > analyze.log; ls report/${file}`;
const study = (options) =>
  `weft scale --devices 1,2 --out study-${options === "" ? "right" : "wrong"} --no-pictures -- torchrun --standalone --nproc_per_node={n} examples/ddp-study/train.py ${options}`;

export const dataParallel = {
  title: "Data-parallel training",
  file: "ddp-optimization.md",
  files: {
    "ag_news_guide.yaml": `model: { d_model: 256, n_heads: 8, num_layers: 4, dim_feedforward: 1024, max_seq_len: 256 }
training:
  batch_size: 128
data:
  num_workers: 4
`,
    "unpack.mjs": `import { readFileSync, writeFileSync } from "node:fs";
import { brotliDecompressSync } from "node:zlib";
const name = process.argv[2];
writeFileSync(\`\${name}.json\`, brotliDecompressSync(readFileSync(\`traces/\${name}.json.br\`)));
`,
    "loaders.py": `import os, torch, torch.nn as nn, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
torch.set_num_threads(1)
world = int(os.environ.get("WORLD_SIZE", "1"))
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(1024, 64), torch.randint(0, 2, (1024,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
`,
    "negative/study.yaml": `studies:
  - name: Negative
    samples: 2048
    batch_per_rank: 32
    runs:
      - {dir: one, devices: 1}
      - {dir: two, devices: 2}
`,
    "negative/one/metrics.csv": epochs(1, 64),
    "negative/two/metrics.csv": epochs(1.4, 32),
    "device.yaml": "training: {device: 'cuda:7', batch_size: 32}\ndistributed: {world_size: 4}\n",
    "tiny.yaml": `name: tiny
model: {vocab_size: 500, d_model: 16, n_heads: 2, num_layers: 1, dim_feedforward: 32, max_seq_len: 16}
data: {dataset: synthetic}
training: {epochs: 1, global_batch: 32}
optimizer: {learning_rate: 0.001}
`,
    "single.sh": `#!/bin/bash
#SBATCH --job-name=agnews_1gpu_opt
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --time=02:00:00
#SBATCH --partition=gpu
cd $SLURM_SUBMIT_DIR
python src/train.py --config configs/ag_news_single_gpu_optimized.yaml
`,
    "ddp.sh": `#!/bin/bash
#SBATCH --job-name=agnews_4gpu_opt
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=02:00:00
#SBATCH --partition=gpu
cd $SLURM_SUBMIT_DIR
srun --mpi=pmix torchrun --nnodes=1 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$SLURM_NODELIST:29500 src/train.py
`,
  },
  sections: [
    {
      title: "Analysis summary",
      rows: [
        {
          ask: "Speedup and efficiency of each data set in a table",
          type: "`weft analyze experiments/` on the guide's own measurements",
          run: analyze,
          exit: 3,
          shows: [/^(IMDB: valid, 3\.49x on 4 devices \(87\.3%\))/],
        },
        {
          ask: "Status of each: excellent, negative scaling",
          type: "the same",
          run: analyze,
          exit: 3,
          shows: [/^(AGNews: NOT VALID as a scaling result \(two-jobs-in-one-file\))/],
          says: "two jobs wrote one file",
        },
        {
          ask: "Why AG News fails: the guide says the model is too small",
          type: "`weft analyze`, finding 2",
          run: analyze,
          exit: 3,
          shows: [/^reading +(each rank does all of the work.*)/, /^reading +(the work is divided.*)/],
          says: "and the observation that would decide",
        },
        {
          ask: "Compute and gradient synchronization in milliseconds",
          type: "`weft scale` on the job, or `weft trace` on its traces",
          run: twoRanks,
          shows: [/^(rank .*)/, /^(0 .*)/],
          says: "compute, exposed communication and idle time of each rank",
        },
        {
          ask: "Batch too small for a GPU",
          type: "`weft diagnose` on the traces of a job",
          run: `${unpack("h200_eager")} && weft diagnose h200_eager.json`,
          exit: [0, 1],
          shows: [/^(1\. \[\w+\] .*)/],
          says: "of a job on an H200: launches bind its step, and a larger batch is predicted to help",
        },
        {
          ask: "Short sequences: less work per sample",
          type: "`weft train` records the length of sequences",
          run: "weft train tiny.yaml --max-steps 5 --out runs/tokens && cat runs/tokens/run.json",
          shows: [/("sequenceLength": *\d+)/],
          says: "the lab has no finding that names the sequence length",
          state: "partly",
        },
        {
          ask: "Amdahl's law: the serial fraction",
          type: "`weft analyze`, `weft predict`",
          run: "weft predict experiments --study IMDB --at 8",
          shows: [/^(law .*)/, /^(amdahl .*)/],
          says: "Amdahl's law beside others, fitted to the same points; the serial fraction (`karpFlatt`) is in `weft analyze --json`",
        },
      ],
    },
    {
      title: "Phase 1: code",
      rows: [
        {
          ask: "`persistent_workers=True`",
          type: "finding `loaders-restarted` of `weft scale`",
          run: loaders,
          exit: [0, 3, 4],
          needs: ["torch"],
          shows: [/^(\d\. \[\w+\] .*loaders-restarted.*)/],
          seconds: 300,
        },
        {
          ask: "`cudnn.benchmark`",
          type: "finding `cheap-switches` of `weft scale`",
          run: `${loaders} > loaders.log; grep -rhoE '"cudnnBenchmark":[a-z]+' study-loaders | sort -u`,
          needs: ["torch"],
          shows: [/^("cudnnBenchmark":\w+)/],
          seconds: 300,
          says: "the probe reads the switch; its effect needs a GPU",
          state: "needs hardware",
        },
        {
          ask: "`static_graph=True`",
          type: "finding `cheap-switches` of `weft scale`",
          run: loaders,
          exit: [0, 3, 4],
          needs: ["torch"],
          shows: [/(DDP\(static_graph=True\).*)/],
          seconds: 300,
        },
        {
          ask: "Sanity check of device ordinals",
          type: "`weft lint agnews.yaml job.sh`",
          run: "weft lint device.yaml ddp.sh",
          exit: 1,
          shows: [/(training\.device: cuda:7 .*)/],
        },
        {
          ask: "The right condition for the sampler",
          type: "`weft scale --devices 1,2 -- torchrun --nproc_per_node={n} train.py`",
          run: study("--no-sampler"),
          exit: [3, 4],
          needs: ["torch"],
          shows: [/^(\d\. \[\w+\] .*work-not-divided.*)/, /(2 ranks together work on .* samples per epoch)/],
          says: "counted from the samples of each rank ([example](../examples/ddp-study/README.md))",
          seconds: 300,
        },
      ],
    },
    {
      title: "Phase 2: model and data",
      rows: [
        {
          ask: "The guide's YAML file",
          type: "`weft train ag_news_guide.yaml --devices 4 --slurm job.sh`",
          run: "weft train ag_news_guide.yaml --devices 4 --slurm guide-job.sh",
          shows: [
            /(training\.batch_size: 128 -> training\.global_batch: 128.*)/,
            /(data\.num_workers: 4 -> data\.loaders: 4)/,
          ],
          says: "read with a printed translation",
        },
        {
          ask: "A larger model",
          type: "`weft train configs/ag_news_large.yaml --explain --devices 4 --memory 1GB`",
          run: "weft lint configs/ag_news_large.yaml && weft train configs/ag_news_large.yaml --set data.dataset=synthetic --max-steps 2 --out runs/large",
          shows: [/^(\d+ file, 0 errors, .*)/, /^(done after 2 steps.*|ok after 2 steps.*|.* after 2 steps; .*)/],
          says: "its full run needs a GPU (trained on an H200)",
          seconds: 240,
        },
        {
          ask: "A larger batch",
          type: "`--global-batch 128`, or `training.global_batch`, `batch_per_rank`",
          run: "weft train tiny.yaml --max-steps 2 --global-batch 128 --out runs/batch",
          shows: [/(global batch 128 = 128 per rank)/],
        },
        {
          ask: "More loader workers",
          type: "`--set data.loaders=4`",
          run: "weft train tiny.yaml --max-steps 4 --set data.loaders=4 --out runs/loaders && head -c 2000 runs/loaders/rank0.jsonl",
          shows: [/("dataWaitUs":[\d.]+)/],
          says: "threads that prefetch; the wait for data is recorded per step",
        },
        {
          ask: "Predict the effect before the run",
          type: "`weft predict experiments --study IMDB --at 8`, `weft tune CONFIG --devices 2`",
          run: "weft predict experiments --study IMDB --at 8",
          shows: [/^(8 .*)/],
          says: "seconds with an 80% interval; recorded in the ledger and scored by the re-run",
        },
        {
          ask: "Ratio of compute to communication",
          type: "`weft train CONFIG --devices 4 --explain`",
          run: "weft train tiny.yaml --devices 4 --explain --memory 1MB",
          shows: [/(.*communicate.*)/],
          says: "predicted",
        },
      ],
    },
    {
      title: "Phase 3: advanced",
      rows: [
        {
          ask: "Gradient accumulation",
          type: "`--set training.accumulation=4`",
          run: "weft train tiny.yaml --max-steps 2 --set training.accumulation=4 --out runs/accumulation",
          shows: [/(.*x 4 micro-steps)/],
          says: "one sum over ranks per optimizer step",
        },
        {
          ask: "Mixed precision in FP16",
          type: "`--set precision.compute=float16`, or `bfloat16`",
          run: "weft train tiny.yaml --max-steps 2 --set precision.compute=float16 --out runs/half",
          shows: [/(.* after 2 steps.*)/],
          says: "loss scaling, float32 parameters; fast on GPUs only",
        },
        {
          ask: "Gradient compression",
          type: "`weft train tiny.yaml --devices 2 --compress bfloat16`",
          run: "weft train tiny.yaml --devices 2 --max-steps 2 --compress bfloat16 --out runs/compressed",
          shows: [/(gradients are sent as bfloat16.*)/, /(.* after 2 steps.*)/],
          says: "also `float16`, and `top-k=0.01` with error feedback",
        },
        {
          ask: "Bucket size",
          type: "`--set distributed.bucket_mb=1`",
          run: "weft train tiny.yaml --devices 2 --max-steps 2 --set distributed.bucket_mb=1 --out runs/bucket",
          shows: [/(.* after 2 steps.*)/],
          says: "gradients are summed in buckets while the backward pass runs",
        },
      ],
    },
    {
      title: "Visualizations",
      rows: [
        [
          "`{dataset}_epoch_time_detailed.png`",
          "*_epoch_time_detailed.png",
          "also as SVG: epoch times with the warm-up marked",
        ],
        [
          "`{dataset}_speedup_efficiency.png`",
          "*_speedup_efficiency.png",
          "with ideal lines, classes and intervals; crossed out where a study is not valid",
        ],
        ["`{dataset}_throughput.png`", "*_throughput.png", "samples per second"],
        ["`{dataset}_accuracy.png`", "*_accuracy.png", "validation accuracy"],
        ["`comprehensive_summary.csv`", "comprehensive_summary.csv", "all metrics of all runs"],
        ["`summary_table.tex`", "summary_table.tex", "for LaTeX"],
        ["`performance_report.txt`", "performance_report.txt", "verdict, findings, fixes"],
      ].map(([ask, file, says]) => ({
        ask,
        type: "`weft analyze experiments/ --out report`",
        run: has(file),
        shows: [/^(report\/.*)/],
        says,
      })),
    },
    {
      title: "Next steps, job scripts",
      rows: [
        {
          ask: "Run the optimized configuration with `sbatch`",
          type: "`weft train CONFIG --devices 4 --slurm job.sh --gpus-per-rank 1 --partition gpu`, then `sbatch job.sh`",
          run: "weft train tiny.yaml --devices 4 --slurm job.sh --gpus-per-rank 1 --partition gpu && grep SBATCH job.sh && weft lint job.sh",
          shows: [/(#SBATCH --ntasks.*)/, /(#SBATCH --gpus-per-task.*|#SBATCH --gres.*)/, /^(1 file, 0 errors.*)/],
          says: "run on a real SLURM in the tests ([example](../examples/slurm/README.md))",
        },
        {
          ask: "Plots with `--root --out --warmup 1 --datasets IMDB AGNews`",
          type: "`weft analyze experiments --warmup 1 --datasets IMDB AGNews --out report`",
          run: "weft analyze experiments --warmup 1 --datasets IMDB AGNews --out plots",
          exit: 3,
          shows: [/^(\d+ files in plots: open report\.html)/],
        },
        {
          ask: "The report finds problems by itself",
          type: "`weft diagnose experiments`",
          run: "weft diagnose experiments",
          exit: 3,
          shows: [/^(1\. \[invalid\] .*)/, /^(fix .*)/],
        },
        { ask: "The single-GPU script", run: "weft lint single.sh", shows: [/^(1 file, 0 errors.*)/] },
        {
          ask: "The four-GPU script",
          run: "weft lint ddp.sh",
          exit: 1,
          shows: [/error: (.*16 processes for 4 GPUs.*?) \[/, /error: (.*SLURM_NODELIST.*?) \[/],
        },
        {
          ask: "Measure one and four GPUs under SLURM",
          type: "`weft scale --devices 1,4 --launcher sbatch --partition gpu --gpus-per-device 1 -- torchrun --nproc_per_node={n} train.py`",
          run: "weft scale --devices 1,4 --launcher sbatch --partition gpu --gpus-per-device 1 --dry-run --out slurm-study -- torchrun --nproc_per_node={n} train.py && find slurm-study -name '*.sh' | sort && grep -rh SBATCH slurm-study --include=*.sh | sort -u",
          shows: [/^(slurm-study.*\.sh)/, /^(#SBATCH --gpus.*|#SBATCH --gres.*)/],
          says: "without `--dry-run` the jobs are submitted, followed and analyzed",
        },
      ],
    },
    {
      title: "Expected results, key learnings",
      rows: [
        {
          ask: "Before and after in one table",
          type: "`weft compare BEFORE AFTER`; predictions: `weft ledger`",
          run: "weft train tiny.yaml --max-steps 20 --out runs/before && weft train tiny.yaml --max-steps 20 --global-batch 64 --out runs/after && weft compare runs/before runs/after",
          shows: [/^(runs\/after .*)/],
          says: "settings that differ first, then what was measured",
        },
        {
          ask: "Rule of thumb: 32 to 128 samples per GPU",
          type: "`weft tune CONFIG --devices 2`",
          run: "weft tune tiny.yaml --devices 2 --probes 3 --out tuned.yaml",
          shows: [/^(.*samples\/s.*)/],
          says: "measured instead of a rule; the answer may be one device",
          seconds: 240,
        },
        {
          ask: "Always profile before scaling",
          type: "`weft trace rank*.json`",
          run: twoRanks,
          shows: [/^(0 .*)/],
          says: "PyTorch, JAX and Nsight Systems, exact to the nanosecond ([traces](traces.md))",
        },
        {
          ask: "Watch for negative scaling",
          type: "every verdict",
          run: "weft analyze negative --no-pictures --out negative-report",
          exit: 4,
          shows: [/^reading +(the work is divided: speedup 0\.72x.*)/],
          says: "slower than one device, if the work is divided; what would settle that is printed",
        },
      ],
    },
  ],
};
