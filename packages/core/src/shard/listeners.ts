// Progress callback of the sharding planner. The command line shows the number of compared candidates.

/** Called after each compared candidate with the number of candidates so far, and with null when a search ends. */
export const planListeners = new Set<(compared: number | null) => void>();

export const notifyPlanning = (compared: number | null): void => {
  for (const listener of planListeners) listener(compared);
};
