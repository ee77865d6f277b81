// Limits of what is read, for code that must not load the schemas.

/** The largest device count, world size or rank that is read: far above any machine, and small enough to loop over. */
export const mostDevices = 1 << 20;
