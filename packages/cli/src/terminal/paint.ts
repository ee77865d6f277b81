// Colors and width of the terminal: verdicts in green and red, headings in bold. No colors where the stream is not a terminal, or with
// NO_COLOR; FORCE_COLOR=1 keeps them in a pipe.

/** Whether output gets colors. */
export function hasColors(
  stream: { isTTY?: boolean } = process.stdout,
  env: Readonly<Record<string, string | undefined>> = process.env,
): boolean {
  if (env.NO_COLOR !== undefined && env.NO_COLOR !== "") return false;
  if (env.FORCE_COLOR !== undefined && env.FORCE_COLOR !== "" && env.FORCE_COLOR !== "0") return true;
  return stream.isTTY === true && env.TERM !== "dumb";
}

const escape = "\u001b[";
const style = (code: number) => (text: string, stream?: { isTTY?: boolean }) =>
  hasColors(stream) ? `${escape}${code}m${text}${escape}0m` : text;

/** Styles by meaning. */
export const paint = { good: style(32), bad: style(31), warning: style(33), strong: style(1), dim: style(2) };

/** Columns of a stream; a pipe has no limit, so that other programs see whole lines. */
export const widthOf = (stream: { isTTY?: boolean; columns?: number }): number =>
  stream.isTTY ? stream.columns || 80 : Number.POSITIVE_INFINITY;

/** What stands before the text of a line, where the next lines begin: spaces, and the name of a value. */
function hangingIndent(line: string): number | null {
  const [name] = /^ *(?:\S+(?: \S+){0,3}? {2,})?/.exec(line)!;
  // More than one gap: columns, which stay as they are.
  return / {2,}\S/.test(line.slice(name.length)) ? null : name.length;
}

/** Lines to copy: breaking them would change what they do. */
const isCommand = (line: string): boolean =>
  /^\s+(?:[A-Z_]+=\S+ )*(?:weft|npx|npm|node|cd|ssh|sbatch|apt|pip) /.test(line);

/** Text broken at spaces to a width. Next lines begin below the text of the first; tables and commands stay whole. */
export function wrapped(text: string, width = widthOf(process.stdout)): string {
  const most = Math.max(1, width);
  return text
    .split("\n")
    .flatMap((line) => {
      if (line.length <= most || isCommand(line)) return [line];
      const indent = hangingIndent(line);
      if (indent === null || indent > most / 2) return [line];
      const lines = [line.slice(0, indent)];
      let isEmpty = true;
      for (const word of line.slice(indent).split(" ")) {
        const last = lines[lines.length - 1];
        if (isEmpty) lines[lines.length - 1] += word;
        else if (last.length + 1 + word.length <= most) lines[lines.length - 1] = `${last} ${word}`;
        else lines.push(`${" ".repeat(indent)}${word}`);
        isEmpty = false;
      }
      return lines;
    })
    .join("\n");
}
