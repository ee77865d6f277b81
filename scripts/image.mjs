// Builds deploy/Dockerfile with a real builder and runs the image: `node scripts/image.mjs`. No registry is needed: the base images
// are replaced by a Debian that debootstrap makes, with this machine's Node where the file wants one, and this machine's settings of
// apt and npm. Needs root, buildah and debootstrap (Debian: apt install buildah debootstrap). Takes several minutes and 4 GB.
import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { root } from "./setup.mjs";

const folder = mkdtempSync(join(tmpdir(), "weft-image-"));
const storage = ["--root", join(folder, "storage"), "--runroot", join(folder, "run"), "--storage-driver", "vfs"];

/** Runs a command and gives its output; its failure is an error. */
function run(command, args, options = {}) {
  const done = spawnSync(command, args, { encoding: "utf8", maxBuffer: 1 << 28, ...options });
  if (done.status === 0) return done.stdout.trim();
  throw new Error(
    `${command} ${args.join(" ")} ended with ${done.status}: ${`${done.stdout}${done.stderr}`.slice(-3000)}`,
  );
}
const buildah = (command, ...args) => run("buildah", [...storage.slice(0, 6), command, ...args]);
const say = (text) => console.log(`image: ${text}`);

/** A minimal Debian that reaches the network as this machine does. */
function debian() {
  const made = join(folder, "debian");
  const sources = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"].filter((path) =>
    existsSync(path),
  );
  const text = sources.map((path) => readFileSync(path, "utf8")).join("\n");
  const mirror = /^\s*(?:URIs:|deb)\s+(?:\[[^\]]*\]\s+)?(\S+)/m.exec(text)?.[1];
  const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
  const trust = existsSync(keyring) ? [`--keyring=${keyring}`] : [];
  run("debootstrap", [
    ...trust,
    "--variant=minbase",
    "--include=ca-certificates",
    "bookworm",
    made,
    ...(mirror ? [mirror] : []),
  ]);
  for (const path of ["/etc/apt", "/etc/ssl/certs", "/usr/local/share/ca-certificates"]) {
    if (!existsSync(path)) continue;
    mkdirSync(join(made, path), { recursive: true });
    run("cp", ["-a", "--remove-destination", `${path}/.`, join(made, path)]);
  }
  // All settings of npm that this user has, wherever they come from.
  const given = ["registry", "cafile"].flatMap((name) => {
    const value = run("npm", ["config", "get", name]);
    return value === "null" || value === "undefined" ? [] : [`${name}=${value}\n`];
  });
  if (existsSync(join(homedir(), ".npmrc"))) cpSync(join(homedir(), ".npmrc"), join(made, "root/.npmrc"));
  appendFileSync(join(made, "root/.npmrc"), `\n${given.join("")}`);
  return made;
}

function image(name, content) {
  const container = buildah("from", "scratch");
  buildah("add", "--quiet", container, content, "/");
  buildah("commit", "--quiet", container, `localhost/${name}`);
  buildah("rm", container);
}

try {
  say("makes a Debian");
  const base = debian();
  image("debian:12-slim", base);
  mkdirSync(join(base, "usr/local/lib/node_modules"), { recursive: true });
  cpSync(realpathSync(process.execPath), join(base, "usr/local/bin/node"));
  const npm = dirname(dirname(realpathSync(run("which", ["npm"]))));
  cpSync(npm, join(base, "usr/local/lib/node_modules/npm"), { recursive: true });
  run("ln", ["-sf", "../lib/node_modules/npm/bin/npm-cli.js", join(base, "usr/local/bin/npm")]);
  image("node:22-bookworm-slim", base);
  rmSync(base, { recursive: true, force: true });

  say("builds deploy/Dockerfile from what is committed");
  const context = join(folder, "context");
  mkdirSync(context);
  run("sh", ["-c", `git -C "${root}" archive HEAD | tar -x -C "${context}"`]);
  const env = Object.entries(process.env).filter(([name]) => /^(NODE_EXTRA_CA_CERTS|SSL_CERT_\w+)$/.test(name));
  const build = [
    "--pull-never",
    "--isolation",
    "chroot",
    "--network",
    "host",
    "-f",
    join(context, "deploy/Dockerfile"),
  ];
  buildah("bud", ...build, ...env.flatMap(([name, value]) => ["--env", `${name}=${value}`]), "-t", "weft", context);

  say("runs it");
  const container = buildah("from", "--pull-never", "weft");
  const weft = (...args) => buildah("run", "--isolation", "chroot", container, "--", "weft", ...args);
  say(weft("--version"));
  const doctor = weft("doctor");
  if (!/cpu/.test(doctor)) throw new Error(doctor);
  const bench = JSON.parse(
    weft(
      "bench",
      "--devices",
      "2",
      "--sizes",
      "64",
      "--repeats",
      "1",
      "--warmup",
      "1",
      "--no-pictures",
      "--no-independent",
      "--out",
      "/tmp/report",
      "--json",
    ),
  );
  if (!(bench.rows?.length > 0)) throw new Error("weft bench measured nothing");
  const who = buildah("run", "--isolation", "chroot", container, "--", "id", "-un");
  if (who !== "weft") throw new Error(`the image runs as ${who}`);
  say(`weft doctor and weft bench (two workers, ${bench.rows.length} rows) ran as user ${who}`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
