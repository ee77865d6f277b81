// Whether the rows of the GPU table meet what is wanted of them. Knows times, nothing of how they were measured.

/** Every peer's time of a row: those that took turns first, and then no other time of the same peer. */
function timesOfPeers(row, lines) {
  const live = (row.livePeers ?? []).filter(({ ms }) => ms !== undefined);
  return [
    ...live.map(({ peer, ms }) => ({ peer, ms, live: true })),
    ...lines
      .filter(({ work, peer, ms }) => work === row.work && ms !== undefined && !live.some((l) => l.peer === peer))
      // Lines of a run before this one say when that was.
      .map(({ peer, ms, measured }) => ({ peer, ms, live: false, ...(measured && { measured }) })),
  ];
}

/** Whether a row meets what is wanted of it: against each peer that is named, or (`best`) against the fastest of them. */
export function judge(row, lines) {
  const own = row.times.weft?.ms;
  const ratios = own === undefined ? [] : timesOfPeers(row, lines).map((p) => ({ ...p, ratio: p.ms / own }));
  const verdicts = (row.wanted ? [row.wanted] : []).flatMap((wanted) => {
    if (own === undefined) return [{ ...wanted, met: false }];
    if (wanted.milliseconds !== undefined) return [{ ...wanted, met: own <= wanted.milliseconds }];
    const named = ratios.filter(({ peer }) => wanted.against.includes(peer)).sort((a, b) => a.ms - b.ms);
    return (wanted.best ? named.slice(0, 1) : named).map(({ peer, ratio }) => ({
      peer,
      wantedRatio: wanted.ratio,
      ratio,
      met: ratio >= wanted.ratio,
    }));
  });
  return { ...row, peers: ratios, verdicts };
}
