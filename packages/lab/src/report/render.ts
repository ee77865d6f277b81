// Renders Vega-Lite specifications as SVG and PNG. The libraries are loaded on first use; the font is bundled, so that text renders
// on every machine.
import { type ChartSpec, fontFamily } from "./charts.js";
import { fontFiles, textWidth } from "./font.js";

interface TextItem {
  text?: unknown;
  fontSize?: number;
  fontWeight?: string | number;
  limit?: number;
}

const isBold = (weight: unknown): boolean => weight === "bold" || Number(weight) >= 600;

async function loadVega() {
  const [vega, vegaLite] = await Promise.all([import("vega"), import("vega-lite")]);
  // Without a canvas Vega estimates text widths; use those of the bundled font.
  const metrics = (vega as { textMetrics?: Record<string, unknown> }).textMetrics;
  if (metrics !== undefined) {
    const width = (item: TextItem, text: unknown): number =>
      textWidth(String(text ?? item.text ?? ""), item.fontSize ?? 11, isBold(item.fontWeight));
    metrics["width"] = width;
    metrics["measureWidth"] = width;
  }
  return { vega, compile: vegaLite.compile };
}

let vegaModules: ReturnType<typeof loadVega> | null = null;

/** Compiles a chart to the Vega specification for the runtime of the page. */
export async function compileChart(spec: ChartSpec): Promise<ChartSpec> {
  vegaModules ??= loadVega();
  const { compile } = await vegaModules;
  return compile(spec as never).spec as ChartSpec;
}

/** Renders a chart as SVG. */
export async function renderSvg(spec: ChartSpec): Promise<string> {
  const compiled = await compileChart(spec);
  const { vega } = await vegaModules!;
  const view = new vega.View(vega.parse(compiled as never), { renderer: "none" });
  try {
    const svg = await view.toSVG();
    // Viewers may lack the font; name similar ones.
    return svg.replaceAll(`font-family="${fontFamily}"`, `font-family="${fontFamily}, Verdana, sans-serif"`);
  } finally {
    view.finalize();
  }
}

/** Renders a chart as PNG; `scale` 2 is sharp in print. */
export async function renderPng(svg: string, scale = 2): Promise<Uint8Array> {
  const { Resvg } = await import("@resvg/resvg-js");
  const image = new Resvg(svg, {
    background: "white",
    fitTo: { mode: "zoom", value: scale },
    font: { fontFiles, loadSystemFonts: false, defaultFontFamily: fontFamily, sansSerifFamily: fontFamily },
  });
  return image.render().asPng();
}
