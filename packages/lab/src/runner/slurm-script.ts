// Writes the SLURM job script of one run: options of the site, modules, virtual environment, the probe, a sampler that needs only
// bash and /proc, and a file with the exit status.
import { join } from "node:path";
import { nodesFor, type SlurmSite, siteOptions } from "./launchers.js";
import { traceFolder } from "./plan.js";
import { probeFolder } from "./probe.js";

interface JobScript {
  name: string;
  /** Folder of the run: logs, records and exit.json go there. */
  home: string;
  cwd: string;
  command: readonly string[];
  devices: number;
  site: SlurmSite;
  probe: boolean;
  sampleSeconds: number;
  /** Seconds; becomes the job's --time where the site gives none. */
  timeLimit?: number;
}

/** Quotes a word for the shell where needed; ${VARIABLES} of SLURM are expanded by the job. */
export function shellWord(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (/\$\{?SLURM_\w+\}?/.test(word)) return `"${word.replace(/[\\"`]/g, "\\$&")}"`;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

export function slurmTime(seconds: number): string {
  const whole = Math.ceil(seconds / 60) * 60;
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${two(Math.floor(whole / 3600))}:${two(Math.floor((whole % 3600) / 60))}:00`;
}

export function jobScript(job: JobScript): string {
  const site = { ...job.site };
  if (site.time === undefined && job.timeLimit !== undefined) site.time = slurmTime(job.timeLimit + 60);
  const nodes = nodesFor(job.devices, site);
  const options = [
    `--job-name=${job.name}`,
    `--nodes=${nodes}`,
    "--ntasks-per-node=1",
    ...siteOptions(site, job.devices, "node"),
    `--output=${join(job.home, "stdout.log")}`,
    `--error=${join(job.home, "stderr.log")}`,
    "--open-mode=append",
    "--signal=B:TERM@30",
  ];
  const lines = [
    "#!/bin/bash",
    ...options.map((option) => `#SBATCH ${option}`),
    "",
    `# One run of a scaling study: ${job.devices} device(s). Written by weft scale; submit it again with sbatch if you like.`,
    `cd ${shellWord(job.cwd)} || exit 1`,
    ...(site.modules ?? []).map((name) => `module load ${shellWord(name)}`),
    ...(site.venv === undefined ? [] : [`source ${shellWord(join(site.venv, "bin/activate"))}`]),
    `export WEFT_DEVICES=${job.devices}`,
    `export WEFT_TRACE_DIR=${shellWord(traceFolder(job.home))}`,
    // The first host of the allocation, expanded: SLURM_NODELIST itself may be compressed (node[1-4]).
    'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
    "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
    `export OMP_NUM_THREADS=\${OMP_NUM_THREADS:-1}`,
    "export PYTHONUNBUFFERED=1",
    ...(job.probe
      ? [
          `export WEFT_PROBE_DIR=${shellWord(job.home)}`,
          `export PYTHONPATH=${shellWord(probeFolder)}\${PYTHONPATH:+:$PYTHONPATH}`,
        ]
      : []),
    "",
    samplerLines(job),
    "",
    "began=$(date +%s.%N)",
    `${job.command.map(shellWord).join(" ")} &`,
    "job=$!",
    "stopped=",
    "trap 'stopped=1; kill -TERM $job 2>/dev/null' TERM",
    "wait $job; code=$?",
    // A trapped signal interrupts `wait`: wait again for the command.
    'if [ -n "$stopped" ]; then wait $job; code=$?; fi',
    "kill $sampler 2>/dev/null",
    "ended=$(date +%s.%N)",
    `printf '{"exitCode":%d,"startedAt":%s,"endedAt":%s,"stopped":%s,"host":"%s"}\\n' "$code" "$began" "$ended" "\${stopped:-0}" "$(hostname)" > ${shellWord(join(job.home, "exit.json.tmp"))}`,
    `mv ${shellWord(join(job.home, "exit.json.tmp"))} ${shellWord(join(job.home, "exit.json"))}`,
    "exit $code",
    "",
  ];
  return lines.join("\n");
}

/** A sampler in bash that writes the same records as the runner: a compute node may not have Node.js. */
function samplerLines(job: JobScript): string {
  return `sample() {
  local user nice system idle iowait irq softirq steal rest busy total last_busy=0 last_total=0 first=1
  local smi=; command -v nvidia-smi > /dev/null && smi=1
  while sleep ${job.sampleSeconds}; do
    read -r _ user nice system idle iowait irq softirq steal rest < /proc/stat
    busy=$((user + nice + system + irq + softirq + steal)); total=$((busy + idle + iowait))
    if [ -z "$first" ] && [ $total -gt $last_total ]; then
      local memory=$(awk '/MemTotal/ {t=$2} /MemAvailable/ {a=$2} END {printf "%.0f", (t-a)*1024}' /proc/meminfo)
      local queue=$(awk '{split($4, q, "/"); print q[1] - 1}' /proc/loadavg)
      local percent=$(awk "BEGIN {printf \\"%.1f\\", 100 * ($busy - $last_busy) / ($total - $last_total)}")
      local gpus=
      if [ -n "$smi" ]; then
        gpus=$(nvidia-smi --query-gpu=index,utilization.gpu,memory.used,memory.total,power.draw,clocks.sm,temperature.gpu --format=csv,noheader,nounits 2> /dev/null | awk -F', *' '
          function put(name, value, scale) { if (value ~ /^[0-9.]+$/) printf ",\\"%s\\":%.1f", name, value * scale }
          $1 ~ /^[0-9]+$/ { printf "%s{\\"index\\":%d", (n++ ? "," : ""), $1; put("utilizationPercent", $2, 1); put("memoryUsedBytes", $3, 1048576); put("memoryTotalBytes", $4, 1048576); put("powerWatts", $5, 1); put("smClockMHz", $6, 1); put("temperatureC", $7, 1); printf "}" }')
      fi
      printf '{"v":1,"type":"sample","t":%s,"host":{"cpuPercent":%s,"memoryUsedBytes":%s,"runQueue":%s}%s}\\n' "$(date +%s.%N)" "$percent" "$memory" "$queue" "\${gpus:+,\\"devices\\":[$gpus]}" >> ${shellWord(join(job.home, "samples.jsonl"))}
    fi
    first=; last_busy=$busy; last_total=$total
  done
}
sample &
sampler=$!`;
}
