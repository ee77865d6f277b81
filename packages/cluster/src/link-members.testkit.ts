// A member of a group over links, for tests: says where it listens, reads the members' addresses, and runs what it is told.
import { createInterface } from "node:readline";
import { LinkGroup } from "@weft/core/internal/device";
import { dtypes } from "@weft/core/internal/graph";
import { everyKind } from "@weft/testing/group-members";
import { BackgroundThread } from "./background.js";
import type { LinkAddress } from "./links.js";
import type { Security } from "./security.js";

interface Told {
  members: { host: string; data: LinkAddress }[];
  key: string;
}

const [rank, address, security, task] = process.argv.slice(2);
const say = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`);
const background = new BackgroundThread();
const port = await background.listen({ host: address, security: JSON.parse(security) as Security });
say({ port });

for await (const line of createInterface(process.stdin)) {
  const { members, key } = JSON.parse(line) as Told;
  const own = Number(rank);
  const name = "links-test";
  const sockets = background.join({ name, key, rank: own, members: members.map(({ data }) => data) });
  const hosts = members.map(({ host }) => host);
  try {
    const group = LinkGroup.join({ name, rank: own, hosts, sockets, joinTimeout: 8, timeout: 60, drain: true });
    if (task === "kinds") {
      const shapes: [number, number][] = [
        [7, 5],
        [2, 3],
        [103, 211],
      ];
      say(everyKind({ rank: own, size: members.length, name }, { shapes, dtypes: [...dtypes] }, group));
    } else {
      say({ joined: true });
      let last = performance.now();
      try {
        for (;;) {
          group.barrier();
          last = performance.now();
        }
      } catch (error) {
        say({ error: (error as Error).message, seconds: (performance.now() - last) / 1e3 });
      }
    }
  } catch (error) {
    say({ error: (error as Error).message, seconds: 0 });
  }
  process.exit(0);
}
