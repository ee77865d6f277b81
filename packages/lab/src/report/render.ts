// Vega-Lite specifications to SVG and PNG. The heavy libraries are loaded on the first picture, not before; the font is our own,
// so that text is there on every machine.
import { fontFamily, type Spec } from "./charts.js";
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
  // Without a canvas Vega guesses widths; give it the real ones of the font that the pictures are drawn with.
  const metrics = (vega as unknown as { textMetrics?: Record<string, unknown> }).textMetrics;
  if (metrics !== undefined) {
    const width = (item: TextItem, text: unknown): number =>
      textWidth(String(text ?? item.text ?? ""), item.fontSize ?? 11, isBold(item.fontWeight));
    metrics["width"] = width;
    metrics["measureWidth"] = width;
  }
  return { vega, compile: vegaLite.compile };
}

let vegaModules: ReturnType<typeof loadVega> | null = null;

/** The Vega specification that the page's own runtime draws. */
export async function compileChart(spec: Spec): Promise<Spec> {
  vegaModules ??= loadVega();
  const { compile } = await vegaModules;
  return compile(spec as never).spec as unknown as Spec;
}

export async function renderSvg(spec: Spec): Promise<string> {
  const compiled = await compileChart(spec);
  const { vega } = await vegaModules!;
  const view = new vega.View(vega.parse(compiled as never), { renderer: "none" });
  try {
    const svg = await view.toSVG();
    // The viewers at hand may lack the font; name ones that are like it.
    return svg.replaceAll(`font-family="${fontFamily}"`, `font-family="${fontFamily}, Verdana, sans-serif"`);
  } finally {
    view.finalize();
  }
}

/** `scale` 2 gives pictures that stay sharp in print. */
export async function renderPng(svg: string, scale = 2): Promise<Uint8Array> {
  const { Resvg } = await import("@resvg/resvg-js");
  const image = new Resvg(svg, {
    background: "white",
    fitTo: { mode: "zoom", value: scale },
    font: { fontFiles, loadSystemFonts: false, defaultFontFamily: fontFamily, sansSerifFamily: fontFamily },
  });
  return image.render().asPng();
}
