// For tests: programs of Debian's packages, installed where they are missing and this is root on Debian; otherwise the reason why
// they are missing, for a test that skips loudly.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/** Whether a program is installed. */
export const has = (program: string): boolean => folders.some((folder) => existsSync(join(folder, program)));

function isDebian(): boolean {
  try {
    return /^ID(_LIKE)?=.*(debian|ubuntu)/m.test(readFileSync("/etc/os-release", "utf8"));
  } catch {
    return false;
  }
}

/** Why the packages are not there; null when they are. */
export function installDebian(packages: readonly string[], isHere: () => boolean): string | null {
  if (isHere()) return null;
  const names = packages.join(" and ");
  if (process.getuid?.() !== 0 || !isDebian())
    return `${names} is missing, and only root on Debian may install it here`;
  // Test files run beside each other, and apt-get fails at once while another one runs: they take turns.
  const install = `apt-get -qq update; exec apt-get -qq install -y --no-install-recommends ${packages.join(" ")}`;
  const done = spawnSync("flock", ["--wait", "600", "/run/weft-apt.lock", "sh", "-c", install], {
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    stdio: ["ignore", "ignore", "pipe"],
    encoding: "utf8",
    timeout: 900_000,
  });
  if (isHere()) return null;
  const said = (done.stderr ?? "").trim().split("\n").at(-1) || done.error?.message || `exit code ${done.status}`;
  return `apt-get install ${packages.join(" ")} failed: ${said}`;
}

type Provided = { path: string } | { reason: string };

function provide(places: readonly string[], debianPackage: string): Provided {
  const found = (): string | undefined => places.find((path) => existsSync(path));
  const reason = installDebian([debianPackage], () => found() !== undefined);
  return reason === null ? { path: found() as string } : { reason };
}

/** A Chromium. */
export const provideChromium = (): Provided =>
  provide(["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"], "chromium");

/** A LaTeX that writes PDF files. */
export const providePdflatex = (): Provided => provide(["/usr/bin/pdflatex"], "texlive-latex-base");

/** Why there is no mpirun, printed too; false when it is there. */
export function noMpirun(): string | false {
  const reason = installDebian(["openmpi-bin"], () => has("mpirun"));
  if (reason !== null) process.stderr.write(`\nweft: SKIPPED: MPI groups are not tested: ${reason}\n`);
  return reason ?? false;
}
