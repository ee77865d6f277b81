// A contest: Weft and its peers as processes on the same cores, in interleaved rounds, each answer checked before its time
// counts. What the rows are and who takes part is the caller's business.
import { Contestant } from "./contestant.mjs";
import { waitForQuiet, watched } from "./quiet.mjs";
import { median, summary } from "./stats.mjs";

/** A round in which others took more than this share of the cores is repeated. */
export const foreignLimit = 0.08;

export class Contest {
  #settings;
  #processes = new Map();
  /** What each process says of itself. */
  versions = {};

  /**
   * settings: cores, rounds, seconds (of a round), patience (seconds to wait for quiet cores), commands (process -> [file, args]),
   * seats (contestant -> { process, row(id) }), absent (process -> why), peerNames.
   */
  constructor(settings) {
    this.#settings = settings;
  }

  async #process(name) {
    const known = this.#processes.get(name);
    if (known !== undefined) return known;
    const started = new Contestant(name, this.#settings.cores, ...this.#settings.commands[name]());
    this.#processes.set(name, started);
    this.versions[name] = await started.ask({ do: "versions" });
    return started;
  }

  /** One round of one contestant: samples, taken again while others used the cores, at most until patience is over. */
  async #measure(entry, row) {
    const { cores, seconds, patience } = this.#settings;
    const request = { do: "time", row: entry.row, seconds, least: 3 };
    const end = performance.now() + patience * 1e3;
    for (;;) {
      await waitForQuiet(cores, Math.max(0, (end - performance.now()) / 1e3), foreignLimit);
      const { result, foreign } = await watched(cores, entry.process.pid, () => entry.process.ask(request));
      if (foreign <= foreignLimit || performance.now() > end) return { samples: result.samples, foreign };
      process.stderr.write(
        `bench: ${row.id} ${entry.name}: others took ${(foreign * 100).toFixed(0)}% of the cores, again\n`,
      );
    }
  }

  /** row: id, title, peers (contestant -> wanted ratio or null), check(answers) -> what is wrong or null, limitMs. */
  async run(row) {
    const { seats, absent, rounds } = this.#settings;
    const entries = [];
    const problems = {};
    for (const name of ["weft", ...Object.keys(row.peers)]) {
      const seat = seats[name];
      if (absent[seat.process] !== undefined) {
        problems[name] = absent[seat.process];
        continue;
      }
      try {
        const worker = await this.#process(seat.process);
        const entry = { name, process: worker, row: seat.row(row.id), rounds: [] };
        const { check, info } = await worker.ask({ do: "prepare", row: entry.row });
        entries.push(Object.assign(entry, { check, info }));
      } catch (error) {
        problems[name] = error.message.split("\n").slice(0, 6).join("\n");
      }
    }
    const hasOwn = entries[0]?.name === "weft";
    const answers = Object.fromEntries(entries.map(({ name, check }) => [name, check]));
    const wrong = hasOwn ? row.check(answers) : null;
    if (wrong === null && hasOwn)
      for (let round = 0; round < rounds; round++)
        for (const entry of round % 2 === 0 ? entries : [...entries].reverse())
          entry.rounds.push(await this.#measure(entry, row));
    for (const entry of entries) await entry.process.ask({ do: "release", row: entry.row });
    return { id: row.id, title: row.title, wrong, problems, ...this.#results(row, entries) };
  }

  /**
   * Medians and ratios. A ratio is taken within each round, so that noise meets both sides; their median counts. Where
   * three rounds or more were quiet for everybody, only those count.
   */
  #results(row, entries) {
    const { rounds, peerNames } = this.#settings;
    const quiet = Array.from({ length: rounds }, (_, i) => i).filter((i) =>
      entries.every((entry) => (entry.rounds[i]?.foreign ?? 0) <= foreignLimit),
    );
    const counted = (_, i) => quiet.length < 3 || quiet.includes(i);
    const medians = (entry) => entry.rounds.filter(counted).map(({ samples }) => median(samples));
    const weft = entries.find(({ name }) => name === "weft");
    const measured = entries.filter((entry) => entry.rounds.length > 0);
    const times = Object.fromEntries(
      measured.map((entry) => [
        entry.name,
        {
          ms: median(medians(entry)),
          spread: summary(entry.rounds.filter(counted).flatMap(({ samples }) => samples)),
          info: entry.info,
          check: entry.check,
          rounds: entry.rounds,
        },
      ]),
    );
    const ratios = {};
    for (const entry of measured) {
      if (entry === weft) continue;
      const own = medians(weft);
      const each = medians(entry).map((ms, i) => ms / own[i]);
      const wanted = row.peers[entry.name];
      const ratio = median(each);
      const [min, max] = [Math.min(...each), Math.max(...each)];
      const met = wanted === null ? null : ratio >= wanted;
      ratios[entry.name] = { name: peerNames[entry.name], ratio, min, max, wanted, met };
    }
    const limit =
      row.limitMs === undefined || times.weft === undefined
        ? undefined
        : { ms: row.limitMs, met: times.weft.ms <= row.limitMs };
    return { times, ratios, limit };
  }

  stop() {
    for (const worker of this.#processes.values()) worker.stop();
  }
}
