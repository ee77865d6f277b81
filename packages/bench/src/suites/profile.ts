// Where the time of one call goes, by kernel.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as weft from "@weft/core";

interface ProfileEntry {
  name: string;
  kind?: string;
  calls: number;
  us: number;
}

/** Microseconds of each kernel and library call of one run (the fastest of five), the longest first. */
export function profileCall(call: () => unknown): ProfileEntry[] {
  const folder = mkdtempSync(join(tmpdir(), "weft-bench-"));
  const path = join(folder, "trace.json");
  type Event = { tid: number; name: string; dur: number; args?: { kind?: string } };
  const once = (): { events: Event[]; us: number } => {
    weft.profile.start();
    call();
    weft.session().device.synchronize();
    weft.profile.stop(path);
    const all = JSON.parse(readFileSync(path, "utf8")).traceEvents as Event[];
    const events = all.filter(({ tid }) => tid === 2);
    return { events, us: events.reduce((sum, { dur }) => sum + dur, 0) };
  };
  const [fastest] = Array.from({ length: 5 }, once).sort((a, b) => a.us - b.us);
  rmSync(folder, { recursive: true });
  const byName = new Map<string, ProfileEntry>();
  for (const { name, dur, args } of fastest.events) {
    const entry = byName.get(name) ?? { name, kind: args?.kind, calls: 0, us: 0 };
    byName.set(name, { ...entry, calls: entry.calls + 1, us: entry.us + dur });
  }
  return [...byName.values()].sort((a, b) => b.us - a.us).slice(0, 40);
}
