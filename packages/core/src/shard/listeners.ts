// Reports of planning: the command line shows them while a search goes on.

/** Called after each compared candidate with the number of candidates so far, and with null when a search ends. */
export const planListeners = new Set<(compared: number | null) => void>();

export const notifyPlanning = (compared: number | null): void => {
  for (const listener of planListeners) listener(compared);
};
