// For tests: Debian's Chromium, installed when the test runs as root on Debian; otherwise the reason why it is missing.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";

const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Path of a program; installs its Debian package where that is allowed. */
function provide(found: () => string | null, debianPackage: string): { path: string } | { reason: string } {
  const before = found();
  if (before !== null) return { path: before };
  if (process.getuid?.() !== 0 || !existsSync("/etc/debian_version"))
    return { reason: `${debianPackage} is not installed, and only root on Debian may install it here` };
  try {
    execFileSync("apt-get", ["install", "-y", "--no-install-recommends", debianPackage], {
      stdio: "ignore",
      timeout: 300000,
    });
  } catch {
    return { reason: `apt-get install ${debianPackage} failed` };
  }
  const after = found();
  return after === null ? { reason: `${debianPackage} was installed but not found` } : { path: after };
}

export const provideChromium = () => provide(() => places.find((path) => existsSync(path)) ?? null, "chromium");
export const providePdflatex = () =>
  provide(() => (existsSync("/usr/bin/pdflatex") ? "/usr/bin/pdflatex" : null), "texlive-latex-base");
