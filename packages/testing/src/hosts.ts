// Hosts for tests: network, process and host-name namespaces that a bridge connects, each with an address of its own, and
// certificates that name the addresses. Needs root and `ip`.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const ip = (...args: string[]): boolean => spawnSync("ip", args).status === 0;
const openssl = (...args: string[]): boolean => spawnSync("openssl", args).status === 0;

/** Why hosts cannot be made here; false if they can. */
export const noHosts = ((): string | false => {
  if (process.getuid?.() !== 0) return "hosts of their own need root";
  if (spawnSync("openssl", ["version"]).status !== 0) return "no openssl";
  const name = `weft-probe-${process.pid}`;
  const works = ip("netns", "add", name) && ip("netns", "exec", name, "unshare", "--pid", "--uts", "--fork", "true");
  ip("netns", "del", name);
  return works ? false : "network namespaces cannot be created (ip netns add)";
})();

let networks = 0;

/** Several hosts in one network; the test itself is at the first address. */
export class Hosts {
  readonly folder = mkdtempSync(join(tmpdir(), "weft-hosts-"));
  readonly #bridge: string;
  readonly #names: string[];
  readonly #children = new Set<ChildProcess>();
  readonly #inits: number[];
  readonly #net: string;
  readonly tls: { cert: string; key: string; ca: string };

  constructor(readonly count: number) {
    // Names of network devices have at most 15 characters.
    const number = networks++;
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
    this.#names.forEach((name, i) => {
      must(ip("netns", "add", name), "a namespace");
      must(ip("link", "add", `${name}a`, "type", "veth", "peer", "name", "eth0", "netns", name), "a cable");
      must(ip("link", "set", `${name}a`, "master", this.#bridge, "up"), "a cable");
      must(ip("-n", name, "addr", "add", `${this.address(i + 1)}/24`, "dev", "eth0"), "an address");
      must(ip("-n", name, "link", "set", "eth0", "up") && ip("-n", name, "link", "set", "lo", "up"), "a link");
    });
    this.#inits = this.#names.map((_, i) => this.#boot(i + 1));
    const at = (file: string): string => join(this.folder, file);
    this.tls = { cert: at("cert.pem"), key: at("key.pem"), ca: at("cert.pem") };
    const names = Array.from({ length: count + 1 }, (_, i) => `IP:${this.address(i)}`).join();
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
    const child = spawn("nsenter", ["-t", `${this.#inits[host - 1]}`, "-a", "--", ...command], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, WEFT_RATES: "assumed", ...this.environment, ...env },
    });
    this.#children.add(child);
    child.once("exit", () => this.#children.delete(child));
    return child;
  }

  /** The first process of a host: it keeps the namespaces, and all others end with it. */
  #boot(host: number): number {
    const inside = `mount -t tmpfs weft /dev/shm && hostname host${host} && exec sleep 100000`;
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

  /** Limits a host's cable to so many megabits per second, in both directions; false where the kernel cannot. */
  slow(host: number, megabits: number): boolean {
    const name = this.#names[host - 1];
    const shape = ["root", "tbf", "rate", `${megabits}mbit`, "burst", "64kbit", "latency", "400ms"];
    const inside = spawnSync("ip", ["netns", "exec", name, "tc", "qdisc", "replace", "dev", "eth0", ...shape]);
    const outside = spawnSync("tc", ["qdisc", "replace", "dev", `${name}a`, ...shape]);
    return inside.status === 0 && outside.status === 0;
  }

  remove(): void {
    for (const child of this.#children) child.kill("SIGKILL");
    for (const name of this.#names) {
      ip("link", "del", `${name}a`);
      ip("netns", "del", name);
    }
    ip("link", "del", this.#bridge);
    rmSync(this.folder, { recursive: true, force: true });
  }
}
