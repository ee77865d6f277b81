// Prompt lookup decoding: where the last tokens of a text occurred before, the tokens that followed them are proposed, and one pass
// of the model checks all of them. The result is that of one token per pass.

/** Number of tokens that must have occurred before. */
const matched = 3;
const mostFailures = 6;

/** Proposes tokens from repetitions of a text. */
export class PromptLookup {
  readonly #text: number[];
  /** Proposals in a row of which nothing was right. */
  #failures = 0;
  /** Tokens until the next proposal: text that repeats itself by chance costs little. */
  #wait = 0;

  /** @param count - Number of tokens of a proposal. */
  constructor(
    prompt: readonly number[],
    private readonly count: number,
  ) {
    this.#text = [...prompt];
  }

  /** Adds a token of the text. */
  add(token: number): void {
    this.#text.push(token);
    this.#wait--;
  }

  /** Tokens that may follow, or null. */
  propose(): number[] | null {
    const text = this.#text;
    if (this.#wait > 0) return null;
    const end = text.length - matched;
    for (let at = end - 1; at >= 0; at--) {
      let k = 0;
      while (k < matched && text[at + k] === text[end + k]) k++;
      // A repetition that reaches into itself goes on with its period.
      if (k === matched) return Array.from({ length: this.count }, (_, i) => text[at + matched + (i % (end - at))]);
    }
    return null;
  }

  /**
   * The tokens that are certain after a pass.
   *
   * @param chosen - What the model chooses after the last token and after each proposed one.
   */
  accept(proposed: readonly number[], chosen: ArrayLike<number>): number[] {
    let right = 0;
    while (right < proposed.length && Number(chosen[right]) === proposed[right]) right++;
    this.#failures = right > 0 ? 0 : Math.min(this.#failures + 1, mostFailures);
    this.#wait = right > 0 ? 0 : 2 ** this.#failures;
    return Array.from({ length: right + 1 }, (_, i) => Number(chosen[i]));
  }
}
