// The settings of the benchmarks (see core/src/settings).
import { choice, text } from "@weft/core/internal/settings";

export const benchSettings = {
  chromium: text("WEFT_CHROMIUM", "the path of a browser", {
    summary: "Chromium that measures the web app.",
    otherwise: "`/usr/bin/chromium`",
  }),
  htaPython: text("WEFT_HTA_PYTHON", "the command of a Python", {
    summary: "Python with HolisticTraceAnalysis, for the comparison of trace readers.",
  }),
  shardTestDevice: text("WEFT_SHARD_TEST_DEVICE", "a device name", {
    summary: "Device of the workers in the sharding tests.",
    otherwise: "cpu",
  }),
  torch: choice("WEFT_TORCH", ["none"], undefined, { summary: "`none` skips the comparison with PyTorch." }),
  torchPython: text("WEFT_TORCH_PYTHON", "the command of a Python", {
    summary: "Python with PyTorch, for the comparisons.",
  }),
  venvs: text("WEFT_VENVS", "a folder", {
    summary: "Folder of the Python environment of the comparisons.",
    otherwise: "`~/.cache/weft/venvs`",
  }),
} as const;
