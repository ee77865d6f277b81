// The settings of the commands (see core/src/settings).
import { textSetting } from "@weft/core/internal/settings";
import { progressSetting } from "../terminal/index.js";

export const cliSettings = {
  progress: progressSetting,
  ledger: textSetting("WEFT_LEDGER", "a file name", {
    summary: "The ledger of measured runs.",
    otherwise: "`.weft/ledger.jsonl`",
  }),
  probeDir: textSetting("WEFT_PROBE_DIR", "a folder", {
    summary: "Folder for the measurements of a run; set by the lab for the processes that it starts.",
  }),
  python: textSetting("WEFT_PYTHON", "the command of a Python", {
    summary: "Python that runs the PyTorch rows of `weft bench`.",
    otherwise: "`python3`",
  }),
} as const;
