// The settings of the benchmarks (see core/src/settings).
import { choiceSetting, textSetting } from "@weft/core/internal/settings";

export const benchSettings = {
  chromium: textSetting("WEFT_CHROMIUM", "the path of a browser", {
    summary: "Chromium that measures the web app.",
    otherwise: "`/usr/bin/chromium`",
  }),
  htaPython: textSetting("WEFT_HTA_PYTHON", "the command of a Python", {
    summary: "Python with HolisticTraceAnalysis, for the comparison of trace readers.",
  }),
  shardTestDevice: textSetting("WEFT_SHARD_TEST_DEVICE", "a device name", {
    summary: "Device of the workers in the sharding tests.",
    otherwise: "cpu",
  }),
  torch: choiceSetting("WEFT_TORCH", ["none"], undefined, { summary: "`none` skips the comparison with PyTorch." }),
  torchPython: textSetting("WEFT_TORCH_PYTHON", "the command of a Python", {
    summary: "Python with PyTorch, for the comparisons.",
  }),
  venvs: textSetting("WEFT_VENVS", "a folder", {
    summary: "Folder of the Python environment of the comparisons.",
    otherwise: "`~/.cache/weft/venvs`",
  }),
} as const;
