// Decoders where the library differs from the published implementation in Rust: leading spaces of sentence pieces, and bytes that
// are not text.

/** A decoder of the library; a sequence has `decoders`. */
interface LibraryDecoder {
  readonly config: { readonly type?: unknown; readonly prepend_scheme?: unknown; readonly add_prefix_space?: unknown };
  readonly replacement?: string;
  readonly decoders?: readonly LibraryDecoder[];
  decode_chain(tokens: string[]): string[];
}

const byteOf = (token: string): number =>
  /^<0x[0-9a-f]{2}>$/i.test(token) ? Number.parseInt(token.slice(3, 5), 16) : -1;

/** Tokens such as `<0xE4>` as characters; each byte of a run that is not UTF-8 is a replacement character. */
function decodeBytes(tokens: readonly string[]): string[] {
  const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const texts: string[] = [];
  let run: number[] = [];
  const endRun = (): void => {
    if (run.length === 0) return;
    try {
      texts.push(utf8.decode(Uint8Array.from(run)));
    } catch {
      texts.push(...run.map(() => "\ufffd"));
    }
    run = [];
  };
  for (const token of tokens) {
    const byte = byteOf(token);
    if (byte >= 0) run.push(byte);
    else {
      endRun();
      texts.push(token);
    }
  }
  endRun();
  return texts;
}

/** Corrects a decoder of the library, and those of a sequence. */
export function correctDecoder(decoder: LibraryDecoder | null): void {
  if (decoder === null) return;
  decoder.decoders?.forEach(correctDecoder);
  const { type, prepend_scheme: scheme, add_prefix_space: legacy } = decoder.config;
  if (type === "ByteFallback") decoder.decode_chain = decodeBytes;
  if (type === "Metaspace" && (scheme ?? (legacy === false ? "never" : "always")) === "never") {
    const { replacement = "\u2581" } = decoder;
    decoder.decode_chain = (tokens) => tokens.map((token) => token.replaceAll(replacement, " "));
  }
}
