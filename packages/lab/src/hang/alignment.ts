// What a rank did where its calls and those of another rank no longer agree: the reading under which the calls that follow fit
// together longest. Two readings of a short rest may fit equally well.

/** One reading: the rank left out `count` calls, issued `count` too many, or issued the call that is due `count` calls later. */
interface Alignment {
  kind: "skipped" | "extra" | "early";
  count: number;
  /** Calls that agree under this reading before the first that does not. */
  agreed: number;
}

/** Calls after the departure that are compared, and the most calls that a reading leaves out, adds or brings forward. */
const compared = 64;
const longest = 8;

/** The readings of the calls of a rank that agree with those of another one longest, the simplest first; none if nothing fits. */
export function bestReadings(own: readonly string[], other: readonly string[]): Alignment[] {
  const readings: Alignment[] = [];
  for (let count = 1; count <= longest; count++) {
    readings.push({ kind: "skipped", count, agreed: agreed(own, other.slice(count)) });
    readings.push({ kind: "extra", count, agreed: agreed(own.slice(count), other) });
    if (own.length > count && count < other.length)
      readings.push({
        kind: "early",
        count,
        agreed: agreed(own, [other[count], ...other.slice(0, count), ...other.slice(count + 1)]),
      });
  }
  const most = Math.max(...readings.map((reading) => reading.agreed));
  return most === 0 ? [] : readings.filter((reading) => reading.agreed === most);
}

function agreed(own: readonly string[], other: readonly string[]): number {
  const end = Math.min(own.length, other.length, compared);
  let i = 0;
  while (i < end && own[i] === other[i]) i++;
  return i;
}

/** Calls with their likely continuation: what followed the longest earlier stretch that ends like them. */
export function withContinuation(calls: readonly string[], from: number): string[] {
  const last = calls.length - 1;
  let [best, at] = [0, -1];
  for (let i = last - 1; i >= 0; i--) {
    let length = 0;
    while (length < compared && length <= i && calls[i - length] === calls[last - length]) length++;
    if (length > best) [best, at] = [length, i];
  }
  return [...calls.slice(from), ...(at < 0 ? [] : calls.slice(at + 1, at + 1 + longest))];
}
