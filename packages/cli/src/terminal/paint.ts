// Colors of the terminal: verdicts in green and red, headings in bold. None where standard output is not a terminal, or with
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

/** Text broken at spaces to a width; lines that begin with spaces, such as tables and commands, stay whole. */
export function wrapped(text: string, width = process.stdout.isTTY ? (process.stdout.columns ?? 100) : 100): string {
  return text
    .split("\n")
    .flatMap((line) => {
      if (line.length <= width || /^\s|\s{2,}/.test(line)) return [line];
      const lines = [""];
      for (const word of line.split(" ")) {
        const last = lines[lines.length - 1];
        if (last === "") lines[lines.length - 1] = word;
        else if (last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`;
        else lines.push(word);
      }
      return lines;
    })
    .join("\n");
}
