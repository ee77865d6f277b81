// For tests: a SLURM cluster of one or several nodes (one daemon each, on this host or on hosts of tests), started as root in a
// temporary folder.
// Installs Debian's packages where that is allowed; otherwise returns the reason.
import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, hostname, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { has, installDebian } from "@weft/testing/debian";
import type { Hosts } from "@weft/testing/hosts";

const hasPmix = (): boolean =>
  ["x86_64-linux-gnu", "aarch64-linux-gnu"].some((folder) => existsSync(join("/usr/lib", folder, "libpmix.so")));

const isRoot = (): boolean => process.getuid?.() === 0;

export interface Slurm {
  env: Record<string, string>;
  stop(): void;
}

/**
 * Starts a cluster, or returns the reason why that is impossible. `gpus`: GPUs per node that SLURM assigns to tasks, with
 * links to /dev/null as their devices. `hosts`: where the nodes are; this host by default.
 */
export async function startSlurm(nodes = 1, gpus = 0, hosts: Hosts | null = null): Promise<Slurm | string> {
  if (!isRoot()) return "SLURM's daemons need root";
  const programs = ["slurmctld", "slurmd", "munged"];
  const missing = installDebian(["slurm-wlm", "munge"], () => programs.every(has));
  if (missing !== null) return missing;
  // Ranks on two nodes talk over MPI. SLURM's PMIx plugin opens libpmix.so by this name, which only the -dev package has.
  const noMpi = nodes > 1 ? installDebian(["openmpi-bin", "libpmix-dev"], () => has("mpirun") && hasPmix()) : null;
  if (noMpi !== null) return noMpi;
  const folder = mkdtempSync(join(tmpdir(), "weft-slurm-"));
  // munge refuses keys and sockets in folders that others may write to.
  chmodSync(folder, 0o755);
  for (const name of ["munge", "state", "spool", "log"]) mkdirSync(join(folder, name), { mode: 0o755 });
  const socket = join(folder, "munge", "socket");
  const key = join(folder, "munge", "key");
  writeFileSync(key, randomBytes(1024), { mode: 0o400 });
  const port = 20000 + (process.pid % 20000);
  const host = hostname().split(".")[0];
  const label = hosts === null ? "weft" : "host";
  const names = nodes === 1 ? [host] : Array.from({ length: nodes }, (_, i) => `${label}${i + 1}`);
  const addressOf = (i: number): string => hosts?.address(i) ?? "127.0.0.1";
  for (const name of names)
    for (const place of ["spool", "tmp"]) mkdirSync(join(folder, place, name), { recursive: true, mode: 0o755 });
  const config = join(folder, "slurm.conf");
  const devices = Array.from({ length: gpus }, (_, i) => join(folder, `gpu${i}`));
  // SLURM wants character devices; their digits are the numbers of the GPUs.
  for (const file of devices) symlinkSync("/dev/null", file);
  const lines = devices.map((file) => `Name=gpu File=${file} Flags=nvidia_gpu_env\n`);
  if (gpus > 0) writeFileSync(join(folder, "gres.conf"), lines.join(""));
  // slurmd looks for control groups of systemd otherwise: hosts of tests have none, and some containers have none at all.
  const controlGroups = readdirSync("/sys/fs/cgroup").length > 0;
  if (hosts !== null || !controlGroups)
    writeFileSync(join(folder, "cgroup.conf"), "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n");
  writeFileSync(
    config,
    `${[
      "ClusterName=weft",
      `SlurmctldHost=${host}(${addressOf(0)})`,
      "SlurmUser=root",
      "SlurmdUser=root",
      "AuthType=auth/munge",
      `AuthInfo=socket=${socket}`,
      "CredType=cred/munge",
      "ProctrackType=proctrack/linuxproc",
      "TaskPlugin=task/none",
      "SelectType=select/cons_tres",
      "SelectTypeParameters=CR_Core",
      "SchedulerType=sched/builtin",
      "SchedulerParameters=batch_sched_delay=0,sched_interval=2",
      "ReturnToService=2",
      "MpiDefault=none",
      "AccountingStorageType=accounting_storage/none",
      "JobAcctGatherType=jobacct_gather/none",
      "KillWait=5",
      "MinJobAge=300",
      `SlurmctldPort=${port}`,
      `StateSaveLocation=${join(folder, "state")}`,
      `SlurmdSpoolDir=${join(folder, "spool")}/%n`,
      // PMIx creates one folder per step there; two nodes on one host must not share it.
      `TmpFS=${join(folder, "tmp")}/%n`,
      `SlurmctldPidFile=${join(folder, "ctld.pid")}`,
      `SlurmdPidFile=${join(folder, "d-%n.pid")}`,
      `SlurmctldLogFile=${join(folder, "log/ctld.log")}`,
      `SlurmdLogFile=${join(folder, "log/d-%n.log")}`,
      ...(gpus > 0 ? ["GresTypes=gpu"] : []),
      ...names.map(
        (name, i) =>
          `NodeName=${name} NodeHostname=${hosts === null ? host : name} NodeAddr=${addressOf(i + 1)} Port=${port + 1 + i} CPUs=${availableParallelism()} RealMemory=${Math.floor(totalmem() / 2 ** 20 / 2)}${gpus > 0 ? ` Gres=gpu:${gpus}` : ""} State=UNKNOWN`,
      ),
      `PartitionName=test Nodes=${names.join(",")} Default=YES MaxTime=INFINITE State=UP`,
    ].join("\n")}\n`,
  );
  const env = { ...(process.env as Record<string, string>), SLURM_CONF: config };
  const daemons = [
    spawn(
      "munged",
      [
        "--foreground",
        "--force",
        `--socket=${socket}`,
        `--key-file=${key}`,
        `--pid-file=${join(folder, "munge/pid")}`,
        `--log-file=${join(folder, "munge/log")}`,
        `--seed-file=${join(folder, "munge/seed")}`,
      ],
      { stdio: "ignore" },
    ),
  ];
  const stop = (): void => {
    for (const daemon of daemons.reverse()) daemon.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  for (const daemon of daemons) daemon.on("error", () => {});
  if (!(await until(() => existsSync(socket), 10))) {
    stop();
    return "munged did not start";
  }
  daemons.push(spawn("slurmctld", ["-D", "-i", "-f", config], { stdio: "ignore", env }));
  names.forEach((name, i) => {
    const line = ["-D", ...(nodes > 1 ? ["-N", name] : []), "-f", config];
    if (hosts === null) daemons.push(spawn("slurmd", line, { stdio: "ignore", env }));
    else hosts.start(i + 1, ["sh", "-c", 'exec "$@" 2> /dev/null', "sh", "slurmd", ...line], env);
  });
  for (const daemon of daemons) daemon.on("error", () => {});
  const idle = (): boolean => {
    try {
      const states = execFileSync("sinfo", ["--noheader", "--Node", "--format=%T"], {
        env,
        encoding: "utf8",
        stdio: ["ignore", "pipe", "ignore"],
        timeout: 5000,
      });
      return (states.match(/^idle$/gm) ?? []).length === nodes;
    } catch {
      return false;
    }
  };
  if (!(await until(idle, 40))) {
    const lines = readdirSync(join(folder, "log")).flatMap((name) =>
      readFileSync(join(folder, "log", name), "utf8")
        .trim()
        .split("\n"),
    );
    const errors = lines.filter((line) => /error|fatal/i.test(line));
    const why = (errors.length > 0 ? errors : lines).slice(-3).join(" / ");
    stop();
    return `SLURM did not come up: ${why}`;
  }
  return { env, stop };
}

async function until(condition: () => boolean, seconds: number): Promise<boolean> {
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    if (condition()) return true;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return condition();
}
