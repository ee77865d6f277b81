// Models that users define: plain functions over a tree of parameters, and data as arrays or as a function of sample
// numbers. The loss is written for a whole batch, as on one device; ranks share its work.
import { createHash } from "node:crypto";
import { stat } from "node:fs/promises";
import { register } from "node:module";
import { pathToFileURL } from "node:url";
import {
  bytesOf,
  type DType,
  isFloat,
  isInexact,
  makeStorage,
  type Storage,
  WeftError,
} from "@weft/core/internal/graph";
import {
  concat,
  flattenTree,
  type Key,
  stack,
  stopGradient,
  Tensor,
  tensor,
  treeLeaves,
  treeMap,
  where,
  zeros,
} from "@weft/core/internal/tensor";
import { stateDict } from "@weft/core/nn";
import type { Workload } from "@weft/formats/internal";
import { boundsBySpeed, DataError, type Epoch, type Position, planEpoch } from "../data/index.js";
import { ConfigError, type ModuleConfig, type RunConfig } from "./config.js";
import { firstNonFinite } from "./nonfinite.js";
import { type ScoreKind, scoreKinds } from "./row-scores.js";
import type { StepContext } from "./step.js";
import type { DataShare, SplitName, Task, TaskBatch, TaskLoader } from "./task.js";

/** What a loss function gets besides parameters and batch. */
export interface LossContext<S = unknown> {
  /** Random key of the step, for dropout. It does not depend on the number of ranks. */
  key: Key;
  /** False during evaluation. */
  train: boolean;
  /** The state of the model, for models that have one: as the loss of the step before returned it. */
  state: S;
}

/** A model as plain functions over a tree of parameters. */
export interface UserModel<P = unknown, S = unknown> {
  /** Initial parameters: nested objects and arrays of tensors. */
  init(key: Key): P;
  /**
   * Initial values of tensors that steps change and no gradient trains, such as the running statistics of batch norm. The loss gets
   * them and returns their new values: `{ loss, state }`.
   */
  state?(): S;
}

/** Data by sample number, for data sets that do not fit in memory. */
export interface SampleSource<B = unknown> {
  /** Number of samples. */
  rows: number;
  /** The samples with these numbers: a tree of tensors whose first dimension is as long as `samples`. */
  batch(samples: Uint32Array): B;
  /** Identifies the content, so that a resumed run can check it; the number of rows by default. */
  key?: string;
}

/** A tree of tensors with one row per sample, or a source of samples. */
export type TrainData<B = unknown> = B | SampleSource<B>;

/** Training data, and optionally data to evaluate on after each epoch. */
export interface TrainSplits<B = unknown> {
  /** Data to train on. */
  train: TrainData<B>;
  /** Data to evaluate on after each epoch. */
  validation?: TrainData<B>;
  /** Data to evaluate on once, at the end. */
  test?: TrainData<B>;
}

const isSource = (data: unknown): data is SampleSource =>
  typeof (data as SampleSource | null)?.batch === "function" && typeof (data as SampleSource).rows === "number";
const isSplits = (data: unknown): data is TrainSplits =>
  typeof data === "object" && data !== null && "train" in data && !(data instanceof Tensor);

/** A tree of tensors as a source: rows are copied from host memory. */
function sourceOf(name: string, data: unknown): SampleSource & { key: string } {
  if (isSource(data)) {
    if (!Number.isSafeInteger(data.rows) || data.rows < 1)
      throw new DataError(`${name}.rows is ${data.rows}; it must be a whole number of at least 1`);
    return { rows: data.rows, batch: (samples) => data.batch(samples), key: data.key ?? `rows ${data.rows}` };
  }
  const { leaves, def } = flattenTree(data);
  if (leaves.length === 0)
    throw new DataError(`${name} has no tensors; give a tree of tensors, or { rows, batch(samples) }`);
  const rows = leaves[0].shape[0] ?? 0;
  const wrong = leaves.find((leaf) => leaf.shape[0] !== rows);
  if (rows === 0 || wrong !== undefined)
    throw new DataError(
      `${name}: every tensor needs one row per sample; got first dimensions ${leaves.map((leaf) => leaf.shape[0] ?? "none").join(", ")}`,
    );
  const hash = createHash("sha256");
  const columns = leaves.map((leaf) => {
    const values = leaf.rawSync();
    hash.update(`${leaf.dtype}${leaf.shape}`);
    hash.update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return { values, dtype: leaf.dtype, shape: leaf.shape.slice(1), width: leaf.size / rows };
  });
  return {
    rows,
    key: hash.digest("hex"),
    batch: (samples) => def.rebuild(columns.map((column) => takeRows(column, samples))),
  };
}

interface Column {
  values: Storage;
  dtype: DType;
  shape: readonly number[];
  width: number;
}

function takeRows({ values, dtype, shape, width }: Column, samples: Uint32Array): Tensor {
  const part = makeStorage(dtype, samples.length * width);
  // Bytes, because half types and 64-bit integers have storages of their own.
  const each = width * bytesOf(dtype);
  const [from, to] = [values, part].map((s) => new Uint8Array(s.buffer, s.byteOffset, s.byteLength));
  samples.forEach((sample, i) => {
    to.set(from.subarray(sample * each, (sample + 1) * each), i * each);
  });
  return tensor(part, { shape: [samples.length, ...shape], dtype });
}

/** What defines the training of a user's model. */
export interface UserDefinition<P = unknown, S = unknown> {
  /** The model. */
  model: UserModel<P, S>;
  /** The mean loss of a batch; for models with a state, the new state too. */
  loss(params: P, batch: never, options: LossContext<S>): Tensor | { loss: Tensor; state: S };
  /**
   * How many terms the mean of the loss has, if these are not the rows of the batch: the tokens of a language model. Micro-steps and
   * batches of an evaluation are weighted by it, so that gradient accumulation gives the step of the larger batch.
   */
  weight?(batch: never, options: { key: Key; train: boolean }): Tensor;
  /** Data to train on, or training and validation data. */
  data: unknown;
  /**
   * Classifiers: the number of rows of a batch whose class is predicted; or, for precision, recall and F1 too, counts by class
   * [3, classes] (`classCounts` of `@weft/core/nn`).
   */
  correct?(params: P, batch: never, options: { state: S }): Tensor;
  /** Classifiers: names of the classes; regressions: names of the outputs. */
  classes?: readonly string[];
  /** Scores that need the predictions of all rows, instead of `correct`. */
  scored?: ScoredRows<P, S>;
}

/** How rows are scored: numbers of a regression, several labels per row, or tags. */
export interface ScoredRows<P = unknown, S = unknown> {
  /** What the numbers of a row are. */
  kind: ScoreKind;
  /** Predictions and labels of a batch [rows, 2, width]: numbers, 0 and 1 by label, or ids of tags (negative labels do not count). */
  rows(params: P, batch: never, options: { state: S }): Tensor;
}

/** Class name of an object in a tree that is neither a plain object nor an array nor a tensor; null if there is none. */
function otherObject(tree: unknown): string | null {
  if (typeof tree !== "object" || tree === null || tree instanceof Tensor) return null;
  const prototype = Object.getPrototypeOf(tree) as { constructor?: { name: string } } | null;
  if (!Array.isArray(tree) && prototype !== Object.prototype && prototype !== null)
    return prototype.constructor?.name ?? "object";
  return (
    Object.values(tree)
      .map(otherObject)
      .find((name) => name !== null) ?? null
  );
}

/** Throws unless parameters are a tree of floating-point tensors with different names. */
function checkParameters(params: unknown): void {
  const other = otherObject(params);
  if (other !== null)
    throw new WeftError(`model.init returned a ${other}; return nested plain objects or arrays of tensors`);
  const named = Object.entries(stateDict(params));
  if (named.length === 0)
    throw new WeftError("model.init returned no tensors; return nested objects or arrays of tensors");
  if (named.length < treeLeaves(params).length)
    throw new WeftError("model.init returned two tensors of one dotted name; rename one of the keys with a dot");
  const places = new Map<Tensor, string>();
  for (const [name, leaf] of named) {
    const first = places.get(leaf);
    if (first !== undefined)
      throw new WeftError(
        `model.init returned one tensor as ${first} and as ${name}, which would be trained apart; return a shared parameter once and use it twice in the loss, or make two tensors`,
      );
    places.set(leaf, name);
  }
  const whole = named.find(([, { dtype }]) => !isInexact(dtype));
  if (whole !== undefined)
    throw new WeftError(
      `model.init returned ${whole[1].dtype} for ${whole[0]}, which has no gradient; parameters are floating-point tensors, and constants belong in the loss function`,
    );
}

/** A state as the model gives it: a tree of tensors with different names. */
function checkedState(state: unknown): unknown {
  const other = otherObject(state);
  if (other !== null || state === undefined)
    throw new WeftError(`model.state returned ${other ?? "nothing"}; return nested plain objects or arrays of tensors`);
  if (Object.keys(stateDict(state)).length < treeLeaves(state).length)
    throw new WeftError("model.state returned two tensors of one dotted name; rename one of the keys with a dot");
  return state;
}

/** What a function of the user returned, which must be one number. */
function scalarOf(name: string, value: unknown, what: string): Tensor {
  if (value instanceof Tensor && value.size === 1) return value.reshape([]);
  const got = value instanceof Tensor ? `a tensor of shape [${value.shape}]` : typeof value;
  throw new WeftError(`${name} returned ${got}; return ${what}, a scalar`);
}

/** Throws unless a state is a tree like the one before. */
function checkState(before: unknown, after: unknown): void {
  const [old, now] = [before, after].map((tree) => stateDict(tree));
  const show = (t: Tensor | undefined): string => (t === undefined ? "nothing" : `${t.dtype}[${t.shape}]`);
  for (const name of new Set([...Object.keys(old), ...Object.keys(now)]))
    if (show(old[name]) !== show(now[name]))
      throw new WeftError(
        `loss returned a state with ${show(now[name])} at ${name || "its root"}, where model.state has ${show(old[name])}; return the same tree of tensors`,
      );
}

/** A user's model and data as a task. */
export class UserTask<P = unknown> implements Task<P> {
  readonly samples: Task["samples"];
  readonly dataKeys: Task["dataKeys"];
  readonly classes: readonly string[];
  readonly hasAccuracy: boolean;
  readonly loaders = 0;
  readonly workload: Workload;
  readonly scoreKind?: ScoreKind;
  readonly weight?: Task<P>["weight"];
  readonly modelState?: () => unknown;
  readonly #sources: Record<SplitName, (SampleSource & { key: string }) | null>;

  constructor(
    private readonly definition: UserDefinition<P>,
    private readonly config: RunConfig,
  ) {
    const given = isSplits(definition.data) ? definition.data : { train: definition.data };
    const other = Object.keys(given).find((name) => !["train", "validation", "test"].includes(name));
    if (other !== undefined)
      throw new DataError(`data.${other} is not known beside data.train; known are train, validation and test`);
    const train = sourceOf("data", given.train);
    const evaluated = (name: "validation" | "test"): ReturnType<typeof sourceOf> | null =>
      given[name] === undefined || !config.training.evaluate ? null : sourceOf(`data.${name}`, given[name]);
    const [validation, test] = [evaluated("validation"), evaluated("test")];
    this.#sources = { train, validation, test };
    this.samples = { train: train.rows, validation: validation?.rows ?? null, test: test?.rows ?? null };
    // Without a function that counts, there is no accuracy.
    const { scored, correct } = definition;
    if (scored !== undefined && !scoreKinds.includes(scored.kind))
      throw new WeftError(`scored.kind is ${String(scored.kind)}; it is one of ${scoreKinds.join(", ")}`);
    if (scored !== undefined) this.scoreKind = scored.kind;
    this.classes = correct === undefined && scored === undefined ? [] : (definition.classes ?? []);
    // Language models have a list of classes, which is empty.
    this.hasAccuracy =
      scored === undefined ? correct !== undefined && definition.classes?.length !== 0 : scored.kind !== "regression";
    this.dataKeys = { train: train.key, test: validation?.key ?? null };
    const { weight } = definition;
    if (weight !== undefined)
      this.weight = (batch, options) =>
        scalarOf("weight", weight(batch as never, options), "the number of terms of the loss");
    const { model } = definition;
    if (model.state !== undefined) this.modelState = () => checkedState(model.state?.());
    this.workload = { dataset: "user data", model: String(config.model) };
    const { globalBatch } = config;
    const { accumulation } = config.training;
    if (globalBatch > train.rows)
      throw new DataError(
        `the global batch of ${globalBatch} is larger than the data of ${train.rows} rows; make it smaller`,
      );
    const last = train.rows % globalBatch;
    if (last > 0 && last < accumulation)
      throw new DataError(
        `the last batch of an epoch has ${last} of ${train.rows} rows, too few for ${accumulation} micro-steps; change the batch`,
      );
  }

  init(key: Key): P {
    const params = this.definition.model.init(key);
    checkParameters(params);
    return params;
  }

  loss(params: P, batch: unknown, options: StepContext): { loss: Tensor; state: unknown } {
    const { state } = options;
    const result = this.definition.loss(params, batch as never, { ...options, state });
    const isBoth = !(result instanceof Tensor) && typeof result === "object" && result !== null && "loss" in result;
    const mean = scalarOf("loss", isBoth ? result.loss : result, "the mean over the batch");
    if (!isFloat(mean.dtype))
      throw new WeftError(`loss returned ${mean.dtype}, which has no gradient; return a real floating-point number`);
    if (this.modelState === undefined) {
      if (isBoth && treeLeaves(result.state ?? {}).length > 0)
        throw new WeftError("loss returned a state, and the model has none; give its initial value by model.state()");
      return { loss: mean, state };
    }
    // An evaluation changes nothing.
    if (!options.train) return { loss: mean, state };
    if (!isBoth || result.state === undefined)
      throw new WeftError("loss returned no state, and the model has one; return { loss, state } with its new values");
    checkState(state, result.state);
    return { loss: mean, state: treeMap((t) => stopGradient(t), result.state as Tensor) };
  }

  evaluate(params: P, batch: unknown, state?: unknown): Tensor {
    const rows = treeLeaves(batch)[0].shape[0];
    const dtype = this.config.precision.compute === "float64" ? "float64" : "float32";
    const key = tensor(Int32Array.from([0, 0]), { dtype: "int32" });
    const loss = this.loss(params, batch, { key, train: false, state }).loss.cast(dtype);
    const { scored, correct: count } = this.definition;
    const counted = this.hasAccuracy && scored === undefined ? count?.(params, batch as never, { state }) : undefined;
    const byClass = counted?.shape.length === 2 && counted.shape[0] === 3 ? counted.cast(dtype) : null;
    const correct =
      counted === undefined || byClass !== null
        ? zeros([], { dtype })
        : scalarOf("correct", counted, "the number of rows whose class is predicted, or counts [3, classes]").cast(
            dtype,
          );
    const weight = this.weight?.(batch, { key, train: false }).cast(dtype);
    const number = loss.mul(0).add(rows);
    // A batch without a term has no mean.
    const sums =
      weight === undefined
        ? [loss.mul(rows), correct, number, ...(byClass === null && scored === undefined ? [] : [number])]
        : [where(weight.equal(0), 0, loss.mul(weight)), correct, weight.mul(0).add(rows), weight];
    if (scored !== undefined) {
      const each = scored.rows(params, batch as never, { state });
      if (each.shape.length !== 3 || each.shape[0] !== rows || each.shape[1] !== 2)
        throw new WeftError(
          `scored.rows returned a tensor of shape [${each.shape}] for ${rows} rows; return predictions and labels [rows, 2, width]`,
        );
      return concat([stack(sums), each.cast(dtype).reshape([-1])]);
    }
    return byClass === null ? stack(sums) : concat([stack(sums), byClass.reshape([-1])]);
  }

  load(split: SplitName, share: DataShare, from: Position): TaskLoader {
    const source = this.#sources[split];
    if (source === null) throw new WeftError(`there is no ${split} split; data() returns it as ${split}: { ... }`);
    const training = split === "train";
    const accumulation = training ? this.config.training.accumulation : 1;
    let { epoch, index } = from;
    let micro = 0;
    let plan = this.#plan(source, epoch, training);
    return {
      next: () => {
        const batch = batchAt(source, plan, { epoch, index, micro }, accumulation, share);
        if (++micro === accumulation) {
          micro = 0;
          if (++index === plan.padded.length) {
            index = 0;
            plan = this.#plan(source, ++epoch, training);
          }
        }
        return batch;
      },
      close() {},
    };
  }

  *shapesAhead(share: DataShare, from: Position): ReturnType<Task["shapesAhead"]> {
    // The first batch: the shapes of a user's data are known when it is made.
    yield this.load("train", share, from).next();
  }

  samplesBefore({ epoch, index }: Position): Uint32Array {
    const plan = this.#plan(this.#sources.train as SampleSource, epoch, true);
    return plan.order.subarray(0, plan.starts[index]);
  }

  diagnose(params: P, inputs: unknown, state: unknown): string {
    const key = tensor(Int32Array.from([0, 0]), { dtype: "int32" });
    return firstNonFinite((p: P) => this.loss(p, inputs, { key, train: true, state }).loss, params);
  }

  #plan(source: SampleSource, epoch: number, shuffle: boolean): Epoch {
    const { globalBatch, seed } = this.config;
    const options = { rows: source.rows, globalBatch: Math.min(globalBatch, source.rows), seed, lengths: [1], shuffle };
    return planEpoch(options, epoch, () => 1);
  }
}

/** Rows [from, to) of part `part` of `parts`, larger parts first: as placements divide them. */
function share(count: number, part: number, parts: number): [number, number] {
  const small = Math.floor(count / parts);
  const more = count % parts;
  const from = part * small + Math.min(part, more);
  return [from, from + small + (part < more ? 1 : 0)];
}

/** Tensors of earlier batches. */
const given = new WeakSet<Tensor>();

function batchAt(
  source: SampleSource,
  plan: Epoch,
  { epoch, index, micro }: Position & { micro: number },
  accumulation: number,
  { rank, ranks, speeds }: DataShare,
): TaskBatch {
  const step = plan.order.subarray(plan.starts[index], plan.starts[index + 1]);
  const rows = step.subarray(...share(step.length, micro, accumulation));
  const bounds = speeds === undefined ? undefined : boundsBySpeed(rows.length, speeds);
  const ids = rows.subarray(...(bounds?.slice(rank, rank + 2) ?? share(rows.length, rank, ranks)));
  const inputs = source.batch(ids);
  if (typeof (inputs as Promise<unknown> | null)?.then === "function")
    throw new DataError("data.batch returned a promise; it must return tensors, so read what it needs before");
  if (treeLeaves(inputs).length === 0) throw new DataError("data.batch returned no tensors; return a tree of tensors");
  for (const leaf of treeLeaves(inputs)) {
    if (given.has(leaf))
      throw new DataError(
        "data.batch returned a tensor that it had returned before; tensors of a batch are released after its step, so make new ones",
      );
    given.add(leaf);
  }
  const wrong = treeLeaves(inputs).find((leaf) => leaf.shape[0] !== ids.length);
  if (wrong !== undefined)
    throw new DataError(
      `data.batch returned a tensor of shape [${wrong.shape}] for ${ids.length} samples; its first dimension must be ${ids.length}`,
    );
  return {
    epoch,
    index,
    micro,
    samples: ids.length,
    total: step.length,
    rows: rows.length,
    bounds,
    share: rows.length / step.length,
    inputs,
    ids,
  };
}

/** Functions that a module exports, by name or as members of its default export. */
interface ModelModule {
  init(key: Key, options: Record<string, unknown>): unknown;
  state?(options: Record<string, unknown>): unknown;
  loss(params: unknown, batch: unknown, options: LossContext): Tensor | { loss: Tensor; state: unknown };
  data(options: Record<string, unknown>): unknown;
  /** Classifiers may have both. */
  correct?(params: unknown, batch: unknown, options: { state: unknown }): Tensor;
  classes?(): readonly string[];
  /** Null for models whose rows are counted by `correct`. */
  scored?(): ScoredRows | null;
  weight?(batch: unknown, options: { key: Key; train: boolean }): Tensor;
}

let findsWeft = false;

/** Modules outside of a project that has Weft installed find the packages that this command uses. */
function findWeft(): void {
  if (findsWeft) return;
  findsWeft = true;
  const hook = `export async function resolve(name, context, next) {
    try { return await next(name, context); } catch (error) {
      if (!name.startsWith("@weft/")) throw error;
      return next(name, { ...context, parentURL: ${JSON.stringify(import.meta.url)} });
    }
  }`;
  register(`data:text/javascript,${encodeURIComponent(hook)}`);
}

/** Loads the module that a configuration names. */
export async function openModuleTask(config: ModuleConfig): Promise<Task> {
  const path = config.model;
  if ((await stat(path).catch(() => null))?.isFile() !== true)
    throw new ConfigError(`model: ${path} is not a file; give the path of a module, relative to the configuration`);
  findWeft();
  const loaded = (await import(pathToFileURL(path).href)) as Partial<ModelModule> & { default?: Partial<ModelModule> };
  const module = { ...loaded.default, ...loaded };
  for (const name of ["init", "loss", "data"] as const)
    if (typeof module[name] !== "function")
      throw new ConfigError(
        `model: ${path} exports no function ${name}; it needs init(key, options), loss(params, batch, { key, train }) and data(options)`,
      );
  const { init, state, loss, data, correct, classes, scored, weight } = module as ModelModule;
  const splits = await data(config.options);
  const rows = scored?.() ?? null;
  const definition: UserDefinition = {
    model: {
      init: (key) => init(key, config.options),
      ...(state !== undefined && { state: () => state(config.options) }),
    },
    loss: (params, batch, options) => loss(params, batch, options),
    data: splits,
    ...(correct !== undefined && { correct: (params, batch, options) => correct(params, batch, options) }),
    ...(classes !== undefined && { classes: classes() }),
    ...(rows !== null && { scored: rows }),
    ...(weight !== undefined && { weight: (batch, options) => weight(batch, options) }),
  };
  return new UserTask(definition, config);
}
