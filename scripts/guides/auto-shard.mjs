// Rows of the guide on automatic sharding over several GPUs.

const connectTwo = `import { connect } from "@weft/cluster";
import * as weft from "@weft/core";
const cluster = await connect({ devices: 2, calibrate: false });
const { workers } = cluster.device.connection;
`;

/** A dispatcher with two workers at a port; `$1` runs beside them. */
const running = (port, command) => `weft server -p ${port} --insecure > server.log 2>&1 &
for worker in 1 2; do weft worker --cores 1 -p ${port} --insecure > worker$worker.log 2>&1 & done
until grep -q works worker1.log && grep -q works worker2.log; do sleep 0.3; done
${command}`;

const bench = "weft bench --quick --no-pictures --out quick";
const simulated = "weft bench --devices 1 8 --simulate h200 --no-pictures --out simulated";

export const autoShard = {
  title: "Automatic sharding",
  file: "gt-auto-shard.md",
  files: {
    "wide.mjs": `${connectTwo}const f = weft.jit((x, w) => x.matmul(w).relu().matmul(w).sum());
const [x, w] = [weft.randn([4096, 1024]), weft.randn([1024, 1024])];
for (let k = 0; k < 3; k++) await f(x, w).item();
console.log(cluster.device.explain());
await cluster.close();
`,
    "small.mjs": `${connectTwo}const f = weft.jit((x) => x.mul(2).sum());
console.log(await f(weft.ones([8])).item());
console.log(cluster.device.lastChoice);
await cluster.close();
`,
    "program.mjs": `import * as weft from "@weft/core";
const f = weft.jit((x, w) => x.matmul(w).relu().sum());
console.log("sum", (await f(weft.ones([512, 64]), weft.ones([64, 64])).item()));
`,
  },
  sections: [
    {
      title: "Quick start",
      rows: [
        {
          ask: "Benchmark eight GPUs in about five minutes (`--gpus 8 --quick`)",
          type: "`weft bench --gpus 8 --quick`; here: `weft bench --quick`",
          run: bench,
          shows: [/(\d+ results? .*verified.*|.*verified.*)/i, /(average speedup.*)/],
          seconds: 420,
          says: "three rows, two clocks, and a verdict; here the devices are two cores",
          state: "needs hardware",
        },
        {
          ask: "Compare one GPU with eight (`--gpus 1 8`)",
          type: "`weft bench --devices 1,2`; without GPUs: `weft bench --devices 1 8 --simulate h200`",
          run: simulated,
          shows: [/^4096x4096.*predicted.*/],
          says: "nine rows, marked as predictions",
        },
        {
          ask: "A launcher script",
          type: "none is needed: `weft bench` is the one command",
          run: "weft bench --help",
          shows: [/^Usage: weft bench.*/],
        },
        {
          ask: "The dispatcher starts by itself",
          type: "`connect({ devices: 2 })` in a program, or any `weft bench`",
          run: "node wide.mjs",
          shows: [/^.*2 devices.*predicted.*/],
          says: "dispatcher and workers run until `close()`",
        },
        {
          ask: "One worker per GPU is started",
          type: '`connect({ devices: 8, device: "cuda" })`; here with two CPU workers',
          program: `${connectTwo}console.log(\`workers: \${workers.map(({ id, device }) => \`\${id} (\${device})\`).join(", ")}\`);
console.log(\`\${new Set(workers.map(({ process }) => process.pid)).size} processes\`);
await cluster.close();
`,
          shows: [/^workers: .*/, /^2 processes/],
        },
        {
          ask: "Everything is cleaned up",
          type: "Ctrl-C, a crash, `kill -9`",
          run: `cat > forever.mjs <<'END'
${connectTwo}console.log(workers.map(({ process }) => process.pid).join(" "));
setInterval(() => {}, 1000);
END
before=$(ls /dev/shm | grep -c weft)
node forever.mjs > pids.txt & program=$!
until [ -s pids.txt ]; do sleep 0.2; done
kill -9 $program; sleep 6
left=0; for pid in $(cat pids.txt); do kill -0 $pid 2>/dev/null && left=$((left + 1)); done
echo "workers left: $left; files left: $(( $(ls /dev/shm | grep -c weft) - before ))"`,
          shows: [/^workers left: 0; files left: -?0$/],
          says: "after `kill -9`",
        },
      ],
    },
    {
      title: "Manual setup",
      rows: [
        {
          ask: "`python -m gt.server -p 9000`",
          type: "`weft server -p 9000`",
          run: "timeout 8 weft server -p 9456",
          exit: [0, 124, 130, 143],
          shows: [/^dispatcher on localhost:9456; start workers with: .*/],
        },
        {
          ask: "`CUDA_VISIBLE_DEVICES=0 python -m gt.worker --host localhost -p 9000`",
          type: "`CUDA_VISIBLE_DEVICES=0 weft worker --device cuda --host localhost -p 9000`; here `weft worker --cores 1 -p 9000`",
          run: running(9457, "cat worker1.log"),
          shows: [/^w\d: cpu works for localhost:9457/],
        },
        {
          ask: "Eight workers on eight GPUs",
          type: "the same eight times, or `--device cuda:3`",
          run: running(9458, "weft top --server localhost:9458 --insecure --once"),
          shows: [/^.*2 workers.*/],
          says: "here two CPU workers; on one GPU, two workers shared it",
          state: "needs hardware",
        },
        {
          ask: "Benchmark the running system at several counts",
          type: "`weft bench --server localhost:9000`",
          run: running(
            9459,
            "WEFT_INSECURE=1 weft bench --server localhost:9459 --sizes 512 1024 --no-pictures --out served",
          ),
          shows: [/average speedup.*/],
          says: "one and two of its workers, the same tables",
        },
      ],
    },
    {
      title: "What gets benchmarked",
      rows: [
        {
          ask: "Square products of 4K, 8K and 16K",
          type: "`weft bench --devices 1,2` (a quarter of each edge on CPUs), or `--sizes 4096 8192 16384`",
          run: simulated,
          shows: [/^(.*Square matrix products.*)/i, /^16384x16384.*/],
        },
        {
          ask: "Products with batches of 8K to 32K",
          type: "the same command",
          run: simulated,
          shows: [/^(.*Large batch products.*)/i, /^(\(32768,2048\).*)/],
        },
        {
          ask: "Forward passes of MLPs",
          type: "the same command, or `--sizes 4096:4096-8192-4096`",
          run: simulated,
          shows: [/^(.*MLP forward passes.*)/i],
        },
      ],
    },
    {
      title: "Expected results",
      rows: [
        {
          ask: "`GT_AUTO_SHARD=1` turns sharding on",
          type: "it is on; `WEFT_AUTO_SHARD=0 node program.js` turns it off",
          run: "WEFT_AUTO_SHARD=0 node wide.mjs",
          shows: [/^(One device.*)/],
        },
        {
          ask: "Linear scaling of large batches: 7 to 8 times on eight GPUs",
          type: "`weft bench --devices 1 8 --simulate h200`",
          run: simulated,
          shows: [/^(speedup.*7\.\d\dx near-perfect, predicted)/],
          says: "predicted; not measured on eight GPUs",
          state: "needs hardware",
        },
        {
          ask: "Partial scaling where data is gathered",
          type: 'clock "end to end" of `weft bench`',
          run: bench,
          shows: [/^(.*end to end.*)/i],
          says: "a second table with creation and fetch",
        },
        {
          ask: "Small operations do not gain",
          type: "`cluster.device.lastChoice`, `cluster.device.explain()`",
          run: "node small.mjs",
          shows: [/^(one worker.*)/],
          says: "the planner does not shard them",
        },
      ],
    },
    {
      title: "Understanding the output",
      rows: [
        {
          ask: "Total time with creation, compute and retrieval",
          type: 'clock "end to end" of `weft bench`',
          run: bench,
          shows: [/^(.*end to end.*)/i, /^(.*\bcompute\b.*)/i],
          says: 'the clock "compute" is beside it, which the guide lacks',
        },
        {
          ask: "TFLOPS",
          type: "in the table of `weft bench`",
          run: bench,
          shows: [/(\d[\d.]* \w?s \([\d.]+ [GT]FLOPS\))/],
        },
        {
          ask: "Speedup of n against one",
          type: "in the table of `weft bench`",
          run: simulated,
          shows: [/(\d\.\d\dx [\w-]+, predicted)/],
          says: "the speedup with its class",
        },
      ],
    },
    {
      title: "Tips",
      rows: [
        {
          ask: "Use large batches",
          type: "`cluster.device.explain()`",
          run: "node wide.mjs",
          shows: [/^(d=2 .*)/],
          says: "what each split would cost",
        },
        {
          ask: "Sizes must divide: 13000 rows fall back to replication",
          type: "`weft bench --devices 1 8 --simulate h200 --sizes 13000x4096x4096`",
          run: "weft bench --devices 1 8 --simulate h200 --sizes 13000x4096x4096 --no-pictures --out uneven",
          shows: [/^(\(13000,4096\).*predicted)/, /^(speedup.*predicted)/],
          says: "shards may be uneven",
        },
        {
          ask: "Watch utilization with `nvidia-smi`",
          type: "`weft top`, `weft ui`",
          run: running(9460, "weft top --server localhost:9460 --insecure --once"),
          shows: [/^(worker .*)/],
          says: "one row per worker; GPU utilization where there is one",
        },
        {
          ask: "`GT_DEBUG_DISPATCHER=1`",
          type: "`WEFT_DEBUG_DISPATCHER=1 node program.js`",
          run: "WEFT_DEBUG_DISPATCHER=1 node wide.mjs",
          shows: [/^(\[dispatcher [\d.]+\] .*defines.*)/],
        },
      ],
    },
    {
      title: "Options",
      rows: [
        {
          ask: "`--quick`: three tests, three iterations",
          type: "`weft bench --quick`",
          run: bench,
          shows: [/(\d warm-up and 3 measured calls, medians)/],
        },
        {
          ask: "`--gpus 1 4 8`",
          type: "`weft bench --gpus 1 4 8`",
          run: "weft bench --gpus 1 4 8",
          exit: [1, 2],
          shows: [/^(?:weft: )?(.*this machine has 0.*)/],
          state: "needs hardware",
        },
        {
          ask: "`--port 9001`",
          type: "`weft bench -p 9001`, `weft server -p 9001`",
          run: running(9461, "WEFT_INSECURE=1 weft bench -p 9461 --quick --compute-only --no-pictures --out port"),
          shows: [/average speedup.*/],
          says: "uses the dispatcher at that port",
        },
      ],
    },
    {
      title: "Troubleshooting",
      rows: [
        {
          ask: '"Connection refused"',
          type: "any client without a dispatcher: `WEFT_CONNECT=localhost:9777 node program.js`",
          run: "WEFT_CONNECT=localhost:9777 node program.mjs",
          exit: 1,
          shows: [/(no dispatcher is listening at localhost:9777; start a dispatcher: weft server -p 9777)/],
        },
        {
          ask: '"No workers available"',
          type: "a client of a dispatcher without workers",
          run: `weft server -p 9778 --insecure > none.log 2>&1 &
until grep -q dispatcher none.log; do sleep 0.2; done
WEFT_INSECURE=1 WEFT_CONNECT=localhost:9778 node program.mjs`,
          exit: 1,
          shows: [/(the dispatcher at localhost:9778 has no workers; start one: .*)/],
        },
        {
          ask: "Poor speedup",
          type: "`weft bench`, `weft diagnose`",
          run: "weft bench --devices 1,2 --sizes 64x64x64 --no-pictures --out poor",
          shows: [/^(.*(?:cannot say|planning and dispatch|too small|one worker).*)/i],
          says: "one cause per row, or why none can be named",
        },
        {
          ask: "Out of memory",
          type: "the same program, with `connect({ maxBytes })`",
          program: `import { connect } from "@weft/cluster";
import * as weft from "@weft/core";
const cluster = await connect({ devices: 2, calibrate: false, maxBytes: 1e6 });
try { await weft.ones([4096, 4096]).add(1).data(); } catch (error) { console.log(error.message); }
await cluster.close();
`,
          shows: [/(this client holds \d+ bytes on a worker and needs \d+ more.*)/],
          says: "no file must be edited",
        },
      ],
    },
    {
      title: "Interpreting speedup, next steps",
      rows: [
        {
          ask: "Classes from near-perfect to none",
          type: "every table",
          run: simulated,
          shows: [/(near-perfect|good)/, /(super-linear|partial|poor|good)/],
          says: "super-linear, near-perfect, good, partial, poor, none and negative, by efficiency",
        },
        {
          ask: "Summary: average, smallest and largest speedup",
          type: "at the end of `weft bench`",
          run: simulated,
          shows: [/(average speedup .*)/],
        },
        {
          ask: "`GT_INSTRUCTION_LOG=/tmp/gt.log`",
          type: "`WEFT_TAPE=run.tape node program.js`, then `weft tape stats run.tape`",
          run: "WEFT_TAPE=run.tape node wide.mjs > tape.log && weft tape stats run.tape",
          shows: [/^(\d+ runs of \d+ programs.*)/],
          says: "every kernel with worker, times, bytes and source line ([example](../examples/trace/README.md))",
        },
        {
          ask: "`compilation_benchmark.py`",
          type: "`weft bench --suite jit`",
          run: "weft bench --suite jit --repeats 20",
          shows: [/^(attention block.*)/],
        },
        {
          ask: "`pytorch_baseline.py`",
          type: "`weft bench --suite pytorch`",
          run: "weft bench --suite pytorch --quick --compute-only --no-pictures --out torch",
          needs: ["torch"],
          shows: [/^(.*PyTorch.*)/i],
          seconds: 300,
        },
      ],
    },
  ],
};
