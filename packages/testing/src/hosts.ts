// Hosts for tests: network, process and host-name namespaces that a bridge connects, each with an address of its own, and
// certificates that name the addresses. Needs root; installs `ip` and `openssl` where they are missing.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { has, installDebian } from "./debian.js";

const ip = (...args: string[]): boolean => spawnSync("ip", args).status === 0;
const openssl = (...args: string[]): boolean => spawnSync("openssl", args).status === 0;

/** Why hosts cannot be made here; false if they can. */
export const noHosts = ((): string | false => {
  if (process.getuid?.() !== 0) return "hosts of their own need root";
  const missing = installDebian(["iproute2", "openssl"], () => has("ip") && has("openssl"));
  if (missing !== null) return missing;
  // What enters the namespaces of a host leaves a chroot.
  const seen = spawnSync("nsenter", ["-t", `${process.pid}`, "--mount", "test", "-e", fileURLToPath(import.meta.url)]);
  if (seen.status !== 0) return "processes of a host could not see the files of this chroot";
  const name = `weft-probe-${process.pid}`;
  const works = ip("netns", "add", name) && ip("netns", "exec", name, "unshare", "--pid", "--uts", "--fork", "true");
  ip("netns", "del", name);
  return works ? false : "network namespaces cannot be created (ip netns add)";
})();

/** Microseconds of a quota's period. */
const period = 100_000;

const controlRoot = "/sys/fs/cgroup";

/** The control group of a host: version 1 with its processor controller, or version 2. */
function controlFolder(name: string): string | null {
  const root = [join(controlRoot, "cpu"), controlRoot].find((folder) => existsSync(join(folder, "cgroup.procs")));
  return root === undefined ? null : join(root, name);
}

/** Removes a control group once its processes, which were killed, have ended. */
function removeGroup(folder: string): void {
  for (const deadline = Date.now() + 2000; Date.now() < deadline; )
    try {
      rmdirSync(folder);
      return;
    } catch {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
}

/** Limits a network device to so many megabits per second. */
function shape(within: readonly string[], device: string, megabits: number | null): boolean {
  const rule = ["root", "tbf", "rate", `${megabits}mbit`, "burst", "64kbit", "latency", "400ms"];
  const change = megabits === null ? ["del", "dev", device, "root"] : ["replace", "dev", device, ...rule];
  const [command, ...args] = [...within, "tc", "qdisc", ...change];
  return spawnSync(command, args).status === 0;
}

let networks = 0;

/** Several hosts in one network; the test itself is at the first address. */
export class Hosts {
  readonly folder = mkdtempSync(join(tmpdir(), "weft-hosts-"));
  readonly #number: number;
  readonly #bridge: string;
  readonly #names: string[];
  readonly #children = new Set<ChildProcess>();
  readonly #inits: number[];
  /** Control groups by host. */
  readonly #limited = new Map<number, string>();
  readonly #net: string;
  /** Whether the hosts have addresses of IPv6 too. */
  readonly hasIpv6: boolean;
  readonly tls: { cert: string; key: string; ca: string };

  constructor(readonly count: number) {
    // Names of network devices have at most 15 characters.
    const number = networks++;
    this.#number = number;
    const tag = `${process.pid.toString(36)}${number.toString(36)}`;
    this.#net = `10.${100 + (process.pid % 100)}.${((process.pid >> 3) + number) % 250}`;
    this.#bridge = `wb${tag}`;
    this.#names = Array.from({ length: count }, (_, i) => `wh${tag}${i}`);
    const must = (done: boolean, what: string): void => {
      if (!done) throw new Error(`hosts for tests: ${what} failed`);
    };
    must(ip("link", "add", this.#bridge, "type", "bridge"), "the bridge");
    must(ip("addr", "add", `${this.address(0)}/24`, "dev", this.#bridge), "its address");
    must(ip("link", "set", this.#bridge, "up"), "the bridge");
    // Without IPv6 in the kernel, tests of it are skipped.
    this.hasIpv6 = ip("addr", "add", `${this.address6(0)}/64`, "dev", this.#bridge, "nodad");
    this.#names.forEach((name, i) => {
      must(ip("netns", "add", name), "a namespace");
      must(ip("link", "add", `${name}a`, "type", "veth", "peer", "name", "eth0", "netns", name), "a cable");
      must(ip("link", "set", `${name}a`, "master", this.#bridge, "up"), "a cable");
      must(ip("-n", name, "addr", "add", `${this.address(i + 1)}/24`, "dev", "eth0"), "an address");
      if (this.hasIpv6) ip("-n", name, "addr", "add", `${this.address6(i + 1)}/64`, "dev", "eth0", "nodad");
      must(ip("-n", name, "link", "set", "eth0", "up") && ip("-n", name, "link", "set", "lo", "up"), "a link");
    });
    this.#inits = this.#names.map((_, i) => this.#boot(i + 1));
    const at = (file: string): string => join(this.folder, file);
    this.tls = { cert: at("cert.pem"), key: at("key.pem"), ca: at("cert.pem") };
    const names = Array.from({ length: count + 1 }, (_, i) => `IP:${this.address(i)},IP:${this.address6(i)}`).join();
    must(
      openssl(
        ..."req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=weft".split(" "),
        ...["-addext", `subjectAltName=${names}`, "-keyout", this.tls.key, "-out", this.tls.cert],
      ),
      "the certificate",
    );
    for (const [file, secret] of [
      ["token", "secret of the clients of these hosts"],
      ["worker-token", "secret of the workers of these hosts"],
    ])
      writeFileSync(at(file), secret, { mode: 0o600 });
  }

  /** Of the test itself (0) or of a host, from 1. */
  address(i: number): string {
    return `${this.#net}.${i + 1}`;
  }

  /** The same as an address of IPv6, where the kernel has it. */
  address6(i: number): string {
    return `fd57:${(process.pid & 0xffff).toString(16)}:${this.#number.toString(16)}::${i + 1}`;
  }

  /** Options of a dispatcher, worker or client. */
  get security(): { cert: string; key: string; ca: string; tokenFile: string; workerTokenFile: string } {
    return { ...this.tls, tokenFile: join(this.folder, "token"), workerTokenFile: join(this.folder, "worker-token") };
  }

  /** The same for commands. */
  get environment(): Record<string, string> {
    const { cert, key, ca } = this.tls;
    return { WEFT_TLS_CERT: cert, WEFT_TLS_KEY: key, WEFT_TLS_CA: ca };
  }

  /** Starts a command on a host, from 1. */
  start(host: number, command: readonly string[], env: Record<string, string> = {}): ChildProcess {
    const folder = this.#limited.get(host);
    const limited = folder === undefined ? [] : ["sh", "-c", `echo 0 > ${folder}/cgroup.procs; exec "$@"`, "sh"];
    const [first, ...line] = [...limited, "nsenter", "-t", `${this.#inits[host - 1]}`, "-a", "--", ...command];
    const child = spawn(first, line, {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, WEFT_RATES: "assumed", ...this.environment, ...env },
    });
    this.#children.add(child);
    child.once("exit", () => this.#children.delete(child));
    return child;
  }

  /** The process that `start` started, as this process sees it: what it returns enters the host and waits. */
  processOf(child: ChildProcess): number {
    const children = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim();
    return Number(children.split(" ")[0]) || child.pid!;
  }

  /**
   * Starts a dispatcher on the first host and a worker of one core on every host, the last host first. `command` is the command
   * `weft`; returns the dispatcher's address.
   */
  async serve(command: readonly string[], secrets: Record<string, string>): Promise<string> {
    const ready = async (host: number, ...line: string[]): Promise<void> => {
      await once(this.start(host, [...command, ...line, "--json"], secrets).stdout!, "data");
    };
    await ready(1, "server", "--host", this.address(1), "-p", "9000");
    for (let host = this.count; host >= 1; host--)
      await ready(host, "worker", "--host", this.address(1), "--data-host", this.address(host), "--cores", "1");
    return `${this.address(1)}:9000`;
  }

  /** The first process of a host: it keeps the namespaces, and all others end with it. */
  #boot(host: number): number {
    // A network namespace has a /sys of its own, without the control groups.
    const old = `mount -t tmpfs weft ${controlRoot} && mkdir ${controlRoot}/cpu && mount -t cgroup -o cpu weft ${controlRoot}/cpu`;
    const mounted = existsSync(join(controlRoot, "cpu")) ? old : `mount -t cgroup2 weft ${controlRoot}`;
    const inside = `(${mounted}) 2>/dev/null; mount -t tmpfs weft /dev/shm && hostname host${host} && exec sleep 100000`;
    const own = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts", "--ipc"];
    const line = ["netns", "exec", this.#names[host - 1], "unshare", ...own, "sh", "-c", inside];
    const child = spawn("ip", line, { stdio: "ignore" });
    this.#children.add(child);
    const children = `/proc/${child.pid}/task/${child.pid}/children`;
    for (const deadline = Date.now() + 10_000; Date.now() < deadline; ) {
      const pid = existsSync(children) ? Number(readFileSync(children, "utf8").trim()) : 0;
      if (
        pid > 0 &&
        spawnSync("nsenter", ["-t", `${pid}`, "--uts", "hostname"], { encoding: "utf8" }).stdout === `host${host}\n`
      )
        return pid;
    }
    throw new Error("hosts for tests: a host did not start");
  }

  /** Ends every process of a host at once. */
  kill(host: number): void {
    process.kill(this.#inits[host - 1], "SIGKILL");
  }

  /** Stops every process of a host; the first one keeps sleeping. */
  stop(host: number): void {
    spawnSync("nsenter", ["-t", `${this.#inits[host - 1]}`, "--pid", "--mount", "sh", "-c", "kill -STOP -1"]);
  }

  /** Unplugs a host: nothing arrives, nothing is refused. */
  cut(host: number): void {
    ip("link", "set", `${this.#names[host - 1]}a`, "down");
  }

  /** Plugs a host in again. */
  plug(host: number): void {
    ip("link", "set", `${this.#names[host - 1]}a`, "up");
  }

  /** Lets nothing pass between two hosts, as a firewall that drops packets, or lets it pass again; 0 is the test itself. */
  part(a: number, b: number, apart = true): void {
    for (const [from, to] of [
      [a, b],
      [b, a],
    ]) {
      const [within, dev] = from === 0 ? [[], this.#bridge] : [["-n", this.#names[from - 1]], "eth0"];
      const at = [this.address(to), "dev", dev];
      // Nobody has this hardware address.
      if (apart) ip(...within, "neigh", "replace", ...at, "lladdr", "02:00:00:00:00:01", "nud", "permanent");
      else ip(...within, "neigh", "del", ...at);
    }
  }

  /** Limits a host's cable to so many megabits per second, in both directions, or no longer (null); false where the kernel cannot. */
  slow(host: number, megabits: number | null): boolean {
    const name = this.#names[host - 1];
    return shape(["ip", "netns", "exec", name], "eth0", megabits) && shape([], `${name}a`, megabits);
  }

  /** Lets a host's cable carry packets of so many bytes, and drop those for which it has no room; false where the kernel cannot. */
  rough(host: number, packetBytes: number): boolean {
    const name = this.#names[host - 1];
    const rule = `root tbf rate 40mbit burst 16kbit limit ${8 * packetBytes}`.split(" ");
    return [
      ["eth0", ["ip", "netns", "exec", name]],
      [`${name}a`, []],
    ].every(([device, within]) => {
      const run = (...line: string[]): boolean => {
        const [command, ...args] = [...(within as string[]), ...line];
        return spawnSync(command, args).status === 0;
      };
      const small = run("ip", "link", "set", device as string, "mtu", String(packetBytes));
      return small && run("tc", "qdisc", "replace", "dev", device as string, ...rule);
    });
  }

  /** Packets that a host's cable has dropped. */
  dropped(host: number): number {
    const shown = spawnSync("tc", ["-s", "qdisc", "show", "dev", `${this.#names[host - 1]}a`], { encoding: "utf8" });
    return Number(/dropped (\d+)/.exec(shown.stdout)?.[1] ?? 0);
  }

  /** Puts a cable of its own between two hosts, of so many megabits per second in each direction; null takes it away. */
  cable(a: number, b: number, megabits: number | null): boolean {
    const ends = [
      { name: this.#names[a - 1], dev: `to${b}`, other: this.address(b) },
      { name: this.#names[b - 1], dev: `to${a}`, other: this.address(a) },
    ];
    const [{ name, dev }, { name: peer, dev: far }] = ends;
    if (megabits === null) return ip("-n", name, "link", "del", dev);
    if (!ip("-n", name, "link", "add", dev, "type", "veth", "peer", "name", far, "netns", peer)) return false;
    return ends.every(
      (end) =>
        ip("-n", end.name, "link", "set", end.dev, "up") &&
        ip("-n", end.name, "route", "add", `${end.other}/32`, "dev", end.dev) &&
        shape(["ip", "netns", "exec", end.name], end.dev, megabits),
    );
  }

  /** Limits processes that are started on a host from now on to a share of a processor; null lifts it. False where that is impossible. */
  limit(host: number, processors: number | null): boolean {
    const folder = controlFolder(this.#names[host - 1]);
    if (folder === null) return false;
    try {
      mkdirSync(folder, { recursive: true });
      const quota = processors === null ? null : Math.round(processors * period);
      if (existsSync(join(folder, "cpu.max"))) writeFileSync(join(folder, "cpu.max"), `${quota ?? "max"} ${period}`);
      else writeFileSync(join(folder, "cpu.cfs_quota_us"), String(quota ?? -1));
      this.#limited.set(host, folder);
      return true;
    } catch {
      return false;
    }
  }

  remove(): void {
    for (const child of this.#children) child.kill("SIGKILL");
    for (const name of this.#names) {
      ip("link", "del", `${name}a`);
      ip("netns", "del", name);
    }
    ip("link", "del", this.#bridge);
    for (const folder of this.#limited.values()) removeGroup(folder);
    rmSync(this.folder, { recursive: true, force: true });
  }
}
