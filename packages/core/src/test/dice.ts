// A seeded source of decisions for random programs.
export class Dice {
  #state: number;
  constructor(seed: number) {
    this.#state = (seed * 2654435761) >>> 0;
  }
  /** A whole number in [0, n). */
  below(n: number): number {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
    return Math.floor((this.#state / 2 ** 32) * n);
  }
  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)];
  }
  chance(percent: number): boolean {
    return this.below(100) < percent;
  }
}
