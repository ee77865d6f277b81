// weft server: the dispatcher of a cluster.
import { type Command, InvalidArgumentError } from "commander";
import { attempt, CommandError, printJson, printText } from "../terminal/index.js";
import { addSecurity, port, type SecurityFlags, security, untilSignal } from "./cluster-common.js";

const help = `
Examples:
  weft server                                   a dispatcher on localhost:9000
  weft server -p 9100                           on another port; -p 0 picks a free one
  weft server --quota maxSeconds=600 --quota maxBytes=8e9   limits for every client, per worker
  weft server --host 0.0.0.0 --tls-cert c.pem --tls-key k.pem --tls-ca ca.pem \\
    --token-file clients.token --worker-token-file workers.token
                                                for other machines: requires TLS and tokens (docs/security.md)

On this machine, programs and workers of the same user find the tokens by themselves.

Then start workers (weft worker) and connect: connect("localhost:9000") in a program, or WEFT_CONNECT=localhost:9000.
WEFT_DEBUG_DISPATCHER=1 logs what it does.`;

interface Options extends SecurityFlags {
  port: number;
  host: string;
  quota?: Record<string, number>;
  json?: boolean;
}

/** Parses `maxSeconds=600`, and adds it to the quotas before it. The dispatcher checks the names. */
function quota(text: string, before: Record<string, number> = {}): Record<string, number> {
  const [name, value, ...more] = text.split("=");
  if (!(Number(value) > 0) || value.trim() === "" || more.length > 0)
    throw new InvalidArgumentError(`"${text}" is not a quota; write its name and a number above 0: maxSeconds=600`);
  return { ...before, [name]: Number(value) };
}

export default function add(program: Command): void {
  addSecurity(
    program
      .command("server")
      .description("Run the dispatcher that workers and clients connect to.")
      .option("-p, --port <port>", "port to listen on", port, 9000)
      .option("--host <host>", "address to listen on", "localhost")
      .option(
        "--quota <name=number>",
        "a limit for every client, such as maxSeconds=600 (docs/security.md); repeatable",
        quota,
      ),
    "both",
  )
    .option("--json", "one JSON line when ready")
    .addHelpText("after", help)
    .action((options: Options) => attempt(() => run(options)));
}

async function run(options: Options): Promise<void> {
  const { Dispatcher } = await import("@weft/cluster");
  let dispatcher: Awaited<ReturnType<typeof Dispatcher.start>>;
  try {
    dispatcher = await Dispatcher.start({
      host: options.host,
      port: options.port,
      quotas: options.quota,
      ...security(options),
    });
  } catch (error) {
    throw new CommandError((error as Error).message);
  }
  const facts = { ready: true, host: options.host, port: dispatcher.port };
  if (options.json) printJson(facts, 0);
  else
    printText(
      `dispatcher on ${options.host}:${dispatcher.port}; start workers with: weft worker --host ${options.host} -p ${dispatcher.port}\n`,
    );
  await untilSignal();
  dispatcher.stop();
}
