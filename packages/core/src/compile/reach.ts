// Transitive dependencies between units of work (fusion groups and library calls) while groups grow and merge. Bit sets
// under transitive closure: a query is one bit, and a new dependency is propagated to all dependents.

export class Reach {
  readonly #sets: Uint32Array[] = [];
  readonly #words: number;

  constructor(capacity: number) {
    this.#words = Math.ceil(capacity / 32) + 1;
  }

  addUnit(): number {
    this.#sets.push(new Uint32Array(this.#words));
    return this.#sets.length - 1;
  }

  /** Whether one unit depends on another, directly or not. */
  depends(unit: number, on: number): boolean {
    return (this.#sets[unit][on >>> 5] & (1 << (on & 31))) !== 0;
  }

  /** Adds dependencies of a unit, and of everything that depends on it. */
  add(unit: number, on: Iterable<number>): void {
    const more = new Uint32Array(this.#words);
    for (const id of on) {
      if (id === unit) continue;
      more[id >>> 5] |= 1 << (id & 31);
      const set = this.#sets[id];
      for (let w = 0; w < this.#words; w++) more[w] |= set[w];
    }
    this.#spread(unit, more);
  }

  #spread(unit: number, more: Uint32Array): void {
    const own = this.#sets[unit];
    let grew = false;
    for (let w = 0; w < this.#words; w++) {
      if ((more[w] & ~own[w]) !== 0) grew = true;
      own[w] |= more[w];
    }
    if (!grew) return;
    const [word, bit] = [unit >>> 5, 1 << (unit & 31)];
    for (const set of this.#sets) {
      if ((set[word] & bit) === 0) continue;
      for (let w = 0; w < this.#words; w++) set[w] |= more[w];
    }
  }

  /** Merges two units under the first one's number. */
  merge(into: number, other: number): void {
    const own = this.#sets[into];
    const theirs = this.#sets[other];
    const both = new Uint32Array(this.#words);
    for (let w = 0; w < this.#words; w++) both[w] = own[w] | theirs[w];
    for (const id of [into, other]) both[id >>> 5] &= ~(1 << (id & 31));
    own.set(both);
    const [oldWord, oldBit] = [other >>> 5, 1 << (other & 31)];
    const [newWord, newBit] = [into >>> 5, 1 << (into & 31)];
    this.#sets.forEach((set, id) => {
      if (id === into || id === other) return;
      if ((set[oldWord] & oldBit) === 0 && (set[newWord] & newBit) === 0) return;
      set[oldWord] &= ~oldBit;
      set[newWord] |= newBit;
      for (let w = 0; w < this.#words; w++) set[w] |= both[w];
    });
    theirs.fill(0);
  }
}
