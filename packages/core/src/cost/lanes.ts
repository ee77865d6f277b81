// Limits of lane kernels (docs/lanes.md), shared by the compiler that builds them and the planner that predicts them.

/** Largest per-lane state of a loop, and largest number of scalars in an unrolled step. */
export const laneLimits = { state: 512, scalars: 24_000 };
