// The general suite: work that nothing was tuned for, in turns with PyTorch (eager and compiled) in the same run.
import * as weft from "@weft/core";
import { runContest, type Seat } from "./contest.js";
import { LocalContestant } from "./contestant.js";
import type { Suite } from "./context.js";
import { arrayRows } from "./general-arrays.js";
import { classRows } from "./general-classes.js";
import { imageRows } from "./general-images.js";
import { modelRows } from "./general-models.js";
import { moreRows } from "./general-more.js";
import { netRows } from "./general-nets.js";
import { programRows } from "./general-programs.js";
import { rarerRows } from "./general-rarer.js";
import { sizer } from "./general-row.js";
import { generalRows } from "./general-rows.js";
import { windowRows } from "./general-windows.js";
import { startPeers } from "./peers.js";
import { profileCall } from "./profile.js";
import { printTable } from "./report/table.js";

const seats: Record<string, Seat> = {
  weft: { process: "weft", title: "Weft" },
  torch: { process: "torch", title: "torch" },
  "torch.compile": { process: "torch", title: "torch.compile", suffix: " compiled" },
};

const suite: Suite = {
  options: {
    profile: { flag: true, help: "record the time of every kernel" },
    divide: { value: "1", help: "divide sizes above 64 by this; 16 is good for CPUs" },
  },
  defaults: { device: "cuda", rounds: "3", seconds: "0.1" },
  async run(context) {
    const device = weft.setDevice(context.device);
    const [divide, floor] = context.quick ? [2 ** 30, 8] : [context.number("divide"), 64];
    const size = sizer(divide, floor);
    // What is new, or was cut off by a limit of time before, comes first.
    const table = [
      netRows,
      rarerRows,
      windowRows,
      programRows,
      modelRows,
      classRows,
      moreRows,
      arrayRows,
      imageRows,
      generalRows,
    ].flatMap((rows) => rows(size));
    const script = ["torch_general.py", "--device", context.device, "--divide", `${divide}`, "--floor", `${floor}`];
    const { start, absent } = startPeers(context, { torch: script });
    const makers = Object.fromEntries(
      table.map(({ id, make }) => [
        id,
        async () => {
          const made = await make();
          const release = (): void => {
            made.release?.();
            weft.collectGarbage();
            device.trim();
          };
          const info = context.flag("profile") ? { profile: profileCall(made.call) } : {};
          return { ...made, info: { ...made.info, ...info }, release };
        },
      ]),
    );
    const own = new LocalContestant(makers, { device: device.name }, context.quick ? 0 : 0.05);
    const { record, save, contest } = await runContest(
      context,
      context.device === "cpu" ? "general-cpu" : "general",
      table,
      { seats, start: { weft: () => own, ...start }, absent },
    );
    contest.stop();
    record.hardware.gpu = device.name;
    save();
    printTable(record);
    if (record.rows.some(({ wrong }) => wrong !== null)) process.exitCode = 1;
  },
};

export default suite;
