// Reads glyph widths from the bundled font, so that chart layout is the same on machines without fonts or a canvas.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const asset = (name: string): string => fileURLToPath(new URL(`../../assets/${name}`, import.meta.url));

export const fontFiles = [asset("DejaVuSans.subset.ttf"), asset("DejaVuSans-Bold.subset.ttf")];

interface FontWidths {
  unitsPerEm: number;
  glyph: Map<number, number>;
  advance: (glyph: number) => number;
}

function readFont(path: string): FontWidths {
  const file = readFileSync(path);
  const tables = new Map<string, number>();
  for (let i = 0, count = file.readUInt16BE(4); i < count; i++) {
    const at = 12 + i * 16;
    tables.set(file.toString("latin1", at, at + 4), file.readUInt32BE(at + 8));
  }
  const start = (name: string): number => {
    const at = tables.get(name);
    if (at === undefined) throw new Error(`${path}: no ${name} table`);
    return at;
  };
  const metrics = file.readUInt16BE(start("hhea") + 34);
  const hmtx = start("hmtx");
  return {
    unitsPerEm: file.readUInt16BE(start("head") + 18),
    glyph: readCharacterMap(file, start("cmap")),
    advance: (glyph) => file.readUInt16BE(hmtx + Math.min(glyph, metrics - 1) * 4),
  };
}

/** The character map of the basic plane (format 4). */
function readCharacterMap(file: Buffer, cmap: number): Map<number, number> {
  const map = new Map<number, number>();
  for (let i = 0, count = file.readUInt16BE(cmap + 2); i < count; i++) {
    const table = cmap + file.readUInt32BE(cmap + 4 + i * 8 + 4);
    if (file.readUInt16BE(table) !== 4) continue;
    const segments = file.readUInt16BE(table + 6) / 2;
    const ends = table + 14;
    const starts = ends + segments * 2 + 2;
    const deltas = starts + segments * 2;
    const ranges = deltas + segments * 2;
    for (let s = 0; s < segments; s++) {
      const first = file.readUInt16BE(starts + s * 2);
      const last = file.readUInt16BE(ends + s * 2);
      const range = file.readUInt16BE(ranges + s * 2);
      for (let code = first; code <= last && code !== 0xffff; code++) {
        const glyph = range === 0 ? code : file.readUInt16BE(ranges + s * 2 + range + (code - first) * 2);
        if (glyph !== 0) map.set(code, (glyph + file.readUInt16BE(deltas + s * 2)) & 0xffff);
      }
    }
    break;
  }
  return map;
}

let loaded: { regular: FontWidths; bold: FontWidths } | null = null;

/** Width of a text in pixels, in the bundled font. */
export function textWidth(text: string, size: number, bold: boolean): number {
  loaded ??= { regular: readFont(fontFiles[0]!), bold: readFont(fontFiles[1]!) };
  const font = bold ? loaded.bold : loaded.regular;
  let units = 0;
  for (const character of text) units += font.advance(font.glyph.get(character.codePointAt(0)!) ?? 0);
  return (units / font.unitsPerEm) * size;
}
