// Robust ensembles of a gate specification: the infidelity over variations of parameters of the device and of the pulses.
import { key as keyOf, randn, type Tensor, tensor, vmap } from "@weft/core/internal/tensor";
import type { z } from "zod";
import { type RobustObjective, robustLoss } from "../control/index.js";
import {
  above,
  choiceOf,
  construct,
  isObject,
  listOf,
  number,
  recordOf,
  SpecError,
  selectSchema,
  strict,
  text,
  unknownName,
  wholeNumber,
} from "../schema/index.js";
import type { DeviceParameters, QuantumDevice } from "../systems/index.js";

/** Variations of parameters and how their infidelities are combined. */
export interface RobustSpec {
  /** Largest deviation by key: a fraction of the value, or absolute. */
  vary: Record<string, { relative: number } | { absolute: number }>;
  /** Number of values of each parameter, an odd number: the middle one is the nominal value. */
  samples: number;
  /** Devices whose parameters are drawn from a normal distribution around the nominal ones, or null. */
  spread: { sigma: number; devices: number; seed: number; keys: string[] } | null;
  /** How deviations are combined. */
  objective: RobustObjective;
}

const deviation = selectSchema((raw) =>
  isObject(raw) && "absolute" in raw
    ? strict({ absolute: number })
    : isObject(raw)
      ? strict({ relative: number })
      : number.transform((relative) => ({ relative })),
);
const objective = selectSchema((raw): z.ZodType<RobustObjective> => {
  if (!isObject(raw)) return choiceOf(["mean", "worst"]);
  return "softWorst" in raw ? strict({ softWorst: number }) : strict({ cvar: number });
});

const drawn = strict({
  sigma: above("positive"),
  devices: wholeNumber(1, 10_000),
  seed: wholeNumber(0, 2 ** 32 - 1).optional(),
  parameters: listOf(text).optional(),
});

/** The section `robust`; `known` are the parameters that may vary. */
export const robustSchema = (device: QuantumDevice, known: readonly string[]) =>
  construct(
    strict({
      vary: recordOf(deviation).optional(),
      samples: wholeNumber(3, 1001).optional(),
      spread: drawn.optional(),
      objective: objective.optional(),
    }),
    ({ vary = {}, samples = 3, spread, objective: combined = "mean" }): RobustSpec => {
      if (Object.keys(vary).length === 0 && spread === undefined)
        throw new SpecError("vary: name at least one parameter, or give spread");
      for (const [key, by] of Object.entries(vary)) {
        if (!known.includes(key)) throw new SpecError(`vary: ${unknownName("parameter ", key, known)}`);
        if (!(Object.values(by)[0] > 0)) throw new SpecError(`vary.${key}: the deviation must be above 0`);
      }
      if (samples % 2 === 0)
        throw new SpecError(`samples: expected an odd number, so that the nominal value is one, got ${samples}`);
      const names = spread?.parameters ?? ["ec", "ej", "el", "frequency", "anharmonicity"];
      const keys = device.names.flatMap((name) =>
        Object.keys(device.parts[name].parameters)
          .filter((key) => names.includes(key))
          .map((key) => `${name}.${key}`)
          .filter((key) => known.includes(key)),
      );
      if (spread !== undefined && keys.length === 0)
        throw new SpecError(`spread.parameters: no part has one of ${names.join(", ")}`);
      return {
        vary: vary as RobustSpec["vary"],
        samples,
        spread:
          spread === undefined ? null : { sigma: spread.sigma, devices: spread.devices, seed: spread.seed ?? 0, keys },
        objective: combined as RobustObjective,
      };
    },
  );

/** One device of the ensemble: what its parameters are multiplied by, and what is added to them. */
type Variation = Record<string, { factor: number; offset: number }>;

/** Keys of the parameters that differ between the devices of the ensemble. */
const variedKeys = ({ vary, spread }: RobustSpec): string[] => [
  ...new Set([...Object.keys(vary), ...(spread?.keys ?? [])]),
];

/** The nominal device first, then one parameter at a time at its other values, then drawn devices. */
export function variationsOf(spec: RobustSpec): Variation[] {
  const { vary, samples, spread } = spec;
  const nominal: Variation = Object.fromEntries(variedKeys(spec).map((key) => [key, { factor: 1, offset: 0 }]));
  const half = (samples - 1) / 2;
  const shares = Array.from({ length: samples }, (_, k) => (k - half) / half).filter((share) => share !== 0);
  return [
    nominal,
    ...Object.entries(vary).flatMap(([key, by]) =>
      shares.map((share) => ({
        ...nominal,
        [key]:
          "relative" in by
            ? { factor: 1 + share * by.relative, offset: 0 }
            : { factor: 1, offset: share * by.absolute },
      })),
    ),
    ...(spread === null ? [] : drawnDevices(nominal, spread)),
  ];
}

function drawnDevices(nominal: Variation, spread: NonNullable<RobustSpec["spread"]>): Variation[] {
  const { sigma, devices, seed, keys } = spread;
  const draws = randn([devices, keys.length], { key: keyOf(seed), dtype: "float64" }).dataSync() as Float64Array;
  return Array.from({ length: devices }, (_, k) => ({
    ...nominal,
    ...Object.fromEntries(keys.map((key, i) => [key, { factor: 1 + sigma * draws[k * keys.length + i], offset: 0 }])),
  }));
}

/** The parameters of one device of the ensemble. */
export const varied = (all: DeviceParameters, variation: Variation): DeviceParameters =>
  Object.fromEntries(
    Object.entries(variation).map(([key, { factor, offset }]) => [key, all[key].mul(factor).add(offset)]),
  );

/** The combined loss of all devices as one batch. */
export function ensembleOf(
  spec: RobustSpec,
  all: DeviceParameters,
  loss: (changed: DeviceParameters) => Tensor,
): Tensor {
  const variations = variationsOf(spec);
  const keys = variedKeys(spec);
  const column = (pick: (v: { factor: number; offset: number }) => number): Record<string, Tensor> =>
    Object.fromEntries(
      keys.map((key) => [
        key,
        tensor(
          variations.map((v) => pick(v[key])),
          { dtype: "float64" },
        ),
      ]),
    );
  const each = vmap((factors: Record<string, Tensor>, offsets: Record<string, Tensor>) =>
    loss(Object.fromEntries(keys.map((key) => [key, all[key].mul(factors[key]).add(offsets[key])]))),
  );
  const losses = each(
    column((v) => v.factor),
    column((v) => v.offset),
  ) as Tensor;
  return robustLoss(losses, spec.objective);
}
