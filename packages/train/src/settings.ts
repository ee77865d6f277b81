// The settings of this package (see core/src/settings).
import { numberSetting, textSetting } from "@weft/core/internal/settings";

export const trainSettings = {
  datasets: textSetting("WEFT_DATASETS", "a folder", {
    summary: "Folder of prepared and downloaded datasets.",
    otherwise: "`$XDG_CACHE_HOME/weft/data` or `~/.cache/weft/data`",
    formerly: { name: "WEFT_DATA", matches: (value) => value !== "socket" },
  }),
  hub: textSetting("WEFT_HUB", "a base address", {
    summary: "Address of the hub that datasets and models are downloaded from.",
    otherwise: "https://huggingface.co",
  }),
  launcher: numberSetting("WEFT_LAUNCHER", undefined, {
    summary: "Process that started this rank; set by the launcher. The rank ends with it.",
    otherwise: "none",
  }),
  rankError: textSetting("WEFT_RANK_ERROR", "a file name", {
    summary: "File for the error of a failed rank; set by the launcher for its processes.",
  }),
} as const;
