// weft ui: the local web app of a runs folder and, if asked for, of a running cluster.
import { spawn } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import type { Command } from "commander";
import { attempt, CommandError, printLines, warn, wrongUsage } from "../terminal/index.js";
import { addSecurity, port, type SecurityFlags, security, untilSignal } from "./cluster-common.js";
import { cliSettings } from "./settings.js";

interface Options extends SecurityFlags {
  server?: string;
  gates: string;
  host: string;
  port: number;
  open: boolean;
}

const help = `
Examples:
  weft ui                              the runs in runs/, in a browser
  weft ui experiments/                 another folder, or the folder of one run or study
  weft ui --server localhost:9000      and the cluster of that dispatcher
  weft ui --gates examples/quantum     and the gates in that folder
  weft ui --port 7878 --no-open        on a machine without a browser; then, on your own:
                                       ssh -L 7878:localhost:7878 HOST, and open the printed address

Runs appear and change by themselves while they train. The server listens on this machine only, and the printed address holds
a token that is new at every start: without it nobody sees or stops your runs. Ctrl-C ends the server, not the runs.`;

export default function add(program: Command): void {
  const command = program
    .command("ui")
    .description("Show runs, scaling studies, clusters and quantum controls live in a browser.")
    .argument("[runs]", "folder with runs and studies", "runs")
    .option("--server <host:port>", "also watch the dispatcher at this address")
    .option("--gates <dir>", "folder with specifications of gates (YAML)", ".")
    .option("--host <host>", "address to listen on; another than loopback is reachable by others", "127.0.0.1")
    .option("-p, --port <port>", "port; 0 takes a free one", port, 0)
    .option("--no-open", "print the address and do not open a browser");
  addSecurity(command, "client")
    .addHelpText("after", help)
    .action((runs: string, options: Options) => attempt(() => run(runs, options)));
}

async function run(runs: string, options: Options): Promise<void> {
  if (statSync(runs, { throwIfNoEntry: false })?.isDirectory() === false)
    throw new CommandError(`${runs} is a file; give a folder with runs, or the folder of one`, wrongUsage);
  const { isLoopbackName, startUi } = await import("@weft/ui");
  const { host, port: wanted } = options;
  const ledger = cliSettings.ledger.get();
  const watched = options.server === undefined ? {} : { server: options.server, security: security(options) };
  if (options.server !== undefined && !/^[^\s/]+:\d{1,5}$/.test(options.server))
    throw new CommandError(`--server ${options.server}: write HOST:PORT, such as localhost:9000`, wrongUsage);
  const ui = await startUi({
    runs,
    host,
    port: wanted,
    gates: options.gates,
    ...(ledger !== undefined && { ledger }),
    ...watched,
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "EADDRINUSE") throw new CommandError(`port ${wanted} is in use; give another --port, or none`);
    if (error.code === "EADDRNOTAVAIL" || error.code === "ENOTFOUND")
      throw new CommandError(
        `--host ${host} is not an address of this machine; use localhost, 0.0.0.0 or one that ip address lists`,
      );
    if (error.code === "EACCES") throw new CommandError(`port ${wanted} needs more rights; give one above 1023`);
    throw error;
  });
  printLines(`${ui.url}\n`);
  if (process.stdout.isTTY) printLines(`It shows the runs in ${runs}. Ctrl-C ends it.\n`);
  if (!existsSync(runs)) warn(`there is no folder ${runs} yet; what is written there will appear`);
  if (!isLoopbackName(host))
    warn("others can reach this server, and the connection is not encrypted: prefer the default host and ssh -L");
  if (options.open && process.stdout.isTTY) openBrowser(ui.url);
  await untilSignal();
  await ui.close();
}

/** Opens the address in the user's browser, if there is one; the address is printed in any case. */
function openBrowser(url: string): void {
  const command = process.platform === "darwin" ? "open" : process.platform === "win32" ? "explorer" : "xdg-open";
  const child = spawn(command, [url], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
}
