// The training loop of one rank: data, steps, evaluation, records, checkpoints and the end of the run. All ranks do the
// same things in the same order.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { session } from "@weft/core/internal/runtime";
import { showBytes } from "@weft/core/internal/shard";
import { key, type Tensor, tensor } from "@weft/core/internal/tensor";
import type { RunStatus } from "@weft/formats/internal";
import { bestAfter, checkBest, isOutOfPatience } from "./best-epoch.js";
import {
  findCheckpoint,
  type Progress,
  readResult,
  readShards,
  removeUnfinished,
  startShardedCheckpoint,
  writeCheckpoint,
} from "./checkpoint.js";
import { type Config, type ModuleConfig, type RunConfig, showConfig } from "./config.js";
import { coresOf, windowOf } from "./derived.js";
import { TrainError } from "./errors.js";
import { type EvaluationResult, evaluateSplit } from "./evaluate.js";
import { factsOf, workloadOf } from "./facts.js";
import { type RankGroup, singleRank } from "./group.js";
import { Journal, type StepResult } from "./journal.js";
import { lockRun } from "./lock.js";
import { openTask, stepOptionsOf } from "./open-run.js";
import { makeOptimizer } from "./optimizer.js";
import { placePrograms } from "./place-programs.js";
import { type EpochRow, RecordWriter, type RunHead, writeMetrics, writeTrainingRunFile } from "./records.js";
import { checkResume } from "./resume.js";
import { replaceFile } from "./run-files.js";
import { SampleCounter } from "./sample-counter.js";
import type { Section } from "./shards.js";
import { rankSpeeds } from "./speeds.js";
import {
  type AccumulatedGradients,
  freshState,
  initialModelState,
  type StepExecutables,
  type StepOptions,
  stepLog,
  type TrainState,
} from "./step.js";
import { StepTape } from "./tape.js";
import { type DataShare, disposeTree, type Task, type TaskLoader } from "./task.js";
import type { TrainOptions, TrainResult } from "./train-types.js";

export type { TrainEvent, TrainOptions, TrainResult } from "./train-types.js";

/** Trains the model of a configuration on this rank. */
export async function trainConfig(config: Config | ModuleConfig, options: TrainOptions = {}): Promise<TrainResult> {
  return trainTask(config, () => openTask(config), options);
}

/** Trains a task on this rank. It is opened when the run's folder is locked. */
export async function trainTask(
  config: RunConfig,
  open: () => Promise<Task>,
  options: TrainOptions,
): Promise<TrainResult> {
  const unlock = (options.group ?? singleRank).rank === 0 ? lockRun(config.output) : () => {};
  try {
    const run = await Run.open(config, options, await open());
    try {
      return await run.loop();
    } catch (error) {
      run.fail(error as Error);
      throw error;
    } finally {
      run.close();
    }
  } finally {
    unlock();
  }
}

class Run {
  readonly group: RankGroup;
  #state!: TrainState;
  #progress!: Progress;
  #records!: RecordWriter;
  /** Notes from before the record file was open. */
  readonly #early: string[] = [];
  #loader!: TaskLoader;
  #losses: number[] = [];
  readonly #head: RunHead;
  /** When the run began, on a clock that nobody sets. */
  readonly #begun = performance.now();
  readonly #steps: StepOptions;
  #programs!: StepExecutables;
  readonly #rate: (step: number) => number;
  readonly #totalSteps: number;
  readonly #stepsPerEpoch: number;
  readonly #samples: SampleCounter;
  readonly #journal: Journal;
  #tape: StepTape | null = null;
  readonly #window: number;
  #stopped = false;
  #hasNotedBytes = false;
  /** A sharded checkpoint that is being written. */
  #saving: Promise<void> = Promise.resolve();

  private constructor(
    readonly config: RunConfig,
    readonly options: TrainOptions,
    readonly task: Task,
  ) {
    this.group = options.group ?? singleRank;
    checkBest(config, task);
    const samples = task.samples.train as number;
    this.#stepsPerEpoch = Math.ceil(samples / config.globalBatch);
    this.#totalSteps = Math.min(
      config.training.max_steps ?? Number.POSITIVE_INFINITY,
      config.training.epochs * this.#stepsPerEpoch,
    );
    const { optimizer, scaling, rate } = makeOptimizer(config, this.#totalSteps);
    this.#rate = rate;
    // Asynchronous devices are read once per window, synchronous ones after each step.
    this.#window =
      options.readEvery ??
      (session().device.traits.asynchronous ? windowOf(config.logging.every_steps, this.group) : 1);
    this.#steps = {
      ...stepOptionsOf(config, task, this.group, { optimizer, scaling }, this.#window),
      onBytes: (bytes) => this.#noteBytes(bytes),
    };
    this.#journal = new Journal(this.#window, (result) => this.#write(result));
    this.#samples = new SampleCounter(samples, this.group, (indexHash) =>
      this.#records.write("facts", { facts: { indexHash } }),
    );
    const startedAt = Date.now() / 1000;
    this.#head = {
      name: config.name,
      ranks: config.ranks,
      workload: {},
      startedAt,
      cores: coresOf(config),
      steps: this.#totalSteps,
    };
  }

  static async open(config: RunConfig, options: TrainOptions, task: Task): Promise<Run> {
    const run = new Run(config, options, task);
    await run.#start();
    return run;
  }

  /** This rank's part of every batch. */
  get #share(): DataShare {
    return this.#programs.placement.share;
  }

  /** Reports what compression saves, once. */
  #noteBytes(bytes: number): void {
    const { compression } = this.#steps;
    if (compression === undefined || this.#hasNotedBytes) return;
    this.#hasNotedBytes = true;
    const how = "dtype" in compression ? `as ${compression.dtype}` : `by their largest ${100 * compression.topK}%`;
    this.#note(`gradients are sent ${how}: a rank receives ${showBytes(bytes)} per step`);
  }

  get #main(): boolean {
    return this.group.rank === 0;
  }

  async #start(): Promise<void> {
    const { config, options, group } = this;
    const found = findCheckpoint(config.output);
    if (found !== null && options.resume !== true)
      throw new TrainError(
        `${config.output} holds a run already (step ${found.progress.step}); continue it with --resume, or name another folder with --out`,
      );
    const speeds = await rankSpeeds(config, group, found?.progress.speeds);
    this.#programs = placePrograms(
      this.#steps,
      config,
      group,
      speeds,
      (ranks) => {
        const [batch] = this.task.shapesAhead(ranks, { epoch: 0, index: 0 }, 1);
        return { ...batch, stop: this.#stopFlag(false) };
      },
      (text) => this.#note(text),
    );
    const { params, optimizer } = this.#fresh();
    if (found === null) {
      if (options.resume === true) this.#note(`there is no run in ${config.output} yet; it starts from the beginning`);
      this.#state = freshState(this.#steps, params, optimizer);
      this.#progress = {
        version: 1,
        step: 0,
        epoch: 0,
        index: 0,
        lossSum: 0,
        samples: 0,
        seconds: 0,
        epochs: [],
        ranks: config.ranks,
        globalBatch: config.globalBatch,
        data: this.task.dataKeys,
        classes: this.task.classes,
        config,
        speeds,
      };
    } else {
      checkResume(found.progress, config, this.task.dataKeys.train);
      for (const note of found.skipped) this.#note(`skipped a damaged checkpoint: ${note}`);
      const { step } = found.progress;
      const modelState = initialModelState(this.task);
      const stored = this.#programs.stored({ params, optimizer, modelState });
      const read = <T>(section: Section, like: T): Promise<T> =>
        readShards(found.folder, section, like, stored, group.rank);
      const [own, moments] = [await read("model", params), await read("optimizer", optimizer)];
      this.#state = freshState(this.#steps, own, moments, step, await read("state", modelState));
      this.#progress = { ...found.progress, ranks: config.ranks, config, speeds };
      this.#markSeen();
      this.#note(`resumed at step ${step}`);
    }
    this.#loader = this.task.load("train", this.#share, this.#progress);
    if (this.#main) {
      mkdirSync(config.output, { recursive: true });
      removeUnfinished(config.output);
      replaceFile(join(config.output, "config.yaml"), showConfig(config));
      writeMetrics(config.output, this.#progress.epochs);
    }
    const folders = [config.output, ...(options.probeFolder === undefined ? [] : [options.probeFolder])];
    this.#records = new RecordWriter(folders, group.rank, this.#progress.step);
    this.#writeFacts();
    for (const note of this.#early) this.#record(note);
    this.#compile();
    if (options.tapeSteps !== undefined)
      this.#tape = new StepTape(join(config.output, `tape-rank${group.rank}.jsonl`), group.rank, options.tapeSteps);
  }

  /** Compiles for the shapes of the epoch's batches before the first step. */
  #compile(): void {
    const began = performance.now();
    const { step } = this.#progress;
    const evaluates = this.task.samples.validation !== null;
    for (const batch of this.task.shapesAhead(this.#share, this.#progress, this.#totalSteps - step)) {
      const stop = this.#stopFlag(false);
      this.#programs.compile(this.#state, { ...batch, stop }, this.config.training.accumulation > 1, evaluates);
    }
    this.#records.write("facts", { facts: { compileSeconds: (performance.now() - began) / 1000 } });
  }

  /** With several ranks: whether this one wants to stop, for the sum over ranks in the step. */
  #stopFlag(stop: boolean): Tensor | null {
    return this.group.size === 1 ? null : tensor(Int32Array.from([stop ? 1 : 0]), { dtype: "int32" });
  }

  #fresh(): { params: TrainState["params"]; optimizer: unknown } {
    // One program each and separate tensors: a donated state must not share memory.
    return this.#programs.initialState(key(this.config.seed));
  }

  /** Marks samples of the unfinished epoch that were used before the checkpoint, on rank 0. */
  #markSeen(): void {
    if (this.#main && this.#progress.index > 0) this.#samples.mark(this.task.samplesBefore(this.#progress));
  }

  #writeFacts(): void {
    const { config, group } = this;
    const { params } = this.#state;
    const workload = workloadOf(config, this.task, params, this.#stepsPerEpoch);
    Object.assign(this.#head.workload, workload);
    if (this.#main) writeTrainingRunFile(config.output, this.#head, "running");
    this.#records.write("rank", { worldSize: group.size, pid: process.pid, device: session().device.name });
    this.#records.write("facts", { facts: { ...workload, ...factsOf(config, group, this.task, params) } });
    this.#records.flush();
  }

  async loop(): Promise<TrainResult> {
    const { config } = this;
    let yielded = performance.now();
    this.group.barrier();
    while (this.#progress.step < this.#totalSteps && !this.#stopped && !this.#isOutOfPatience()) {
      const progress = this.#progress;
      const epoch = progress.epoch;
      this.#journal.open();
      while (progress.epoch === epoch && progress.step < this.#totalSteps && !this.#stopped) {
        this.#taped(() => this.#step());
        // Signals are delivered only between turns of the event loop.
        if (performance.now() - yielded > 20) {
          await turn();
          yielded = performance.now();
        }
        const every = config.checkpoint.every_steps;
        if (every !== undefined && progress.step % every === 0 && progress.epoch === epoch) await this.#save();
      }
      this.#settle();
      if (this.#stopped) break;
      if (progress.epoch > epoch) this.#samples.close(epoch);
      await this.#endEpoch(epoch, progress.epoch > epoch);
    }
    if (this.#stopped) {
      await this.#save();
      this.#note(`stopped at step ${this.#progress.step}; a checkpoint is written, --resume continues from it`);
    }
    await this.#saving;
    this.group.barrier();
    if (!this.#stopped) await this.#takeBest();
    const test = this.#stopped || this.task.samples.test === null ? null : this.#evaluate("test");
    this.#end(this.#stopped ? "canceled" : "ok", test === null ? {} : { test });
    return {
      status: this.#stopped ? "stopped" : "done",
      steps: this.#progress.step,
      epochs: this.#progress.epochs,
      losses: this.#losses,
      best: this.#progress.best?.epoch ?? null,
      test,
      output: config.output,
    };
  }

  /** Runs a step, recording its kernels if a tape is active. */
  #taped(step: () => void): void {
    const tape = this.#tape;
    if (tape === null || tape.full) {
      step();
      return;
    }
    const { watchers } = session();
    const watch = tape.watch(this.#progress.step);
    watchers.add(watch);
    try {
      step();
    } finally {
      watchers.delete(watch);
    }
  }

  /** One optimizer step with all its micro-steps; reads results when the window is full. */
  #step(): void {
    const { accumulation } = this.config.training;
    const progress = this.#progress;
    const programs = this.#programs;
    const known = programs.compiled;
    const before = this.group.times();
    const cpu = this.#window === 1 ? process.cpuUsage() : null;
    const stopping = this.options.signal?.aborted === true;
    let dataWait = 0;
    let samples = 0;
    let pending: AccumulatedGradients | null = null;
    for (let micro = 0; micro < accumulation; micro++) {
      const asked = performance.now();
      const batch = this.#loader.next();
      dataWait += performance.now() - asked;
      if (batch.epoch !== progress.epoch || batch.index !== progress.index || batch.micro !== micro)
        throw new TrainError(
          `the loader gave batch ${batch.epoch}/${batch.index}, expected ${progress.epoch}/${progress.index}`,
        );
      samples += batch.samples;
      if (this.#programs.placement.isFirstReader) this.#samples.count(batch.ids);
      if (micro < accumulation - 1) {
        const own = { ...batch, stop: null };
        pending = pending === null ? programs.first(this.#state, own) : programs.more(pending, this.#state, own);
        disposeTree(batch.inputs);
        continue;
      }
      const own = { ...batch, stop: this.#stopFlag(stopping) };
      this.#state = pending === null ? programs.whole(this.#state, own) : programs.last(this.#state, pending, own);
      // The next batch then reuses the buffer, and a GPU need not copy it for its recorded graph.
      disposeTree([own.inputs, own.stop]);
      const after = this.group.times();
      const used = cpu === null ? null : process.cpuUsage(cpu);
      this.#journal.add({
        epoch: batch.epoch,
        total: batch.total,
        index: batch.index,
        dataWait,
        samples,
        stopping: this.group.size === 1 && stopping,
        compile: programs.compiled > known,
        cpuUs: used === null ? null : used.user + used.system,
        comm:
          before === null || after === null
            ? null
            : { total: after.total - before.total, exposed: after.exposed - before.exposed },
      });
    }
    progress.step++;
    progress.index++;
    if (progress.index === this.#stepsPerEpoch) {
      progress.index = 0;
      progress.epoch++;
    }
    // Write earlier results while the device runs this step.
    this.#journal.writeOut(false);
    // Ranks decide by step count, not by wall time, because their clocks differ.
    if (this.#journal.due(this.group.size === 1)) this.#read();
    if (this.#window === 1) this.#journal.writeOut(true);
  }

  #read(): void {
    const fetch = (): Float32Array => this.#state.log.dataSync() as Float32Array;
    this.#progress.seconds += this.#journal.read(fetch, this.#progress.step);
  }

  /** Reads and writes the results of all steps so far. */
  #settle(): void {
    this.#read();
    this.#journal.writeOut(true);
  }

  #write({ step, epoch, total, values, durationUs, startMs, ...taken }: StepResult): void {
    const loss = values[stepLog.loss];
    if (values[stepLog.good] === 0) this.#bad(step, loss, { epoch, index: taken.index });
    this.#losses.push(loss);
    this.#progress.lossSum += loss * total;
    this.#progress.samples += total;
    const dataWaitUs = taken.dataWait * 1000;
    const exposedCommUs = (taken.comm?.exposed ?? 0) * 1e6;
    this.#records.step(
      {
        step,
        epoch: epoch + 1,
        durationUs,
        dataWaitUs,
        computeUs: Math.max(0, durationUs - dataWaitUs - exposedCommUs),
        ...(taken.comm !== null && { commUs: taken.comm.total * 1e6, exposedCommUs }),
        ...(taken.cpuUs !== null && { cpuUs: taken.cpuUs }),
        samples: taken.samples,
        loss,
        gradientNorm: values[stepLog.norm],
        learningRate: this.#rate(step + 1),
        ...(this.#steps.scaling !== null && {
          lossScale: values[stepLog.scale],
          skipped: !Number.isFinite(values[stepLog.norm]),
        }),
        ...(taken.compile && { compile: true as const }),
      },
      startMs,
    );
    if (taken.stopping || values[stepLog.stop] > 0) this.#stopped = true;
    if (this.#main)
      this.options.onStep?.({
        epoch: epoch + 1,
        epochs: this.config.training.epochs,
        step: step + 1,
        steps: this.#totalSteps,
        loss,
        samplesPerSecond: (total * 1e6) / durationUs,
      });
  }

  #bad(step: number, loss: number, at: { epoch: number; index: number }): never {
    this.#records.flush();
    const what = this.#programs.placement.splitsParameters
      ? "its tensors are divided over ranks and were not searched"
      : this.task.diagnose(this.#state.params, this.#rebuildBatch(at), this.#state.modelState);
    const last = findCheckpoint(this.config.output);
    throw new TrainError(
      `step ${step + 1}: the loss is ${loss} or its gradient is not finite; ${what}. ` +
        (last === null ? "There is no checkpoint yet" : `The last good checkpoint is ${last.folder}`) +
        "; try a smaller learning_rate, a warm-up, or gradient_clip",
    );
  }

  /** Loads the inputs of the last micro-batch of a step a second time. */
  #rebuildBatch(at: { epoch: number; index: number }): unknown {
    const loader = this.task.load("train", this.#share, at);
    let batch = loader.next();
    for (let micro = 1; micro < this.config.training.accumulation; micro++) batch = loader.next();
    loader.close();
    return batch.inputs;
  }

  #evaluate(split: "validation" | "test"): EvaluationResult {
    return evaluateSplit(this.#programs, this.#state, this.task, split, this.#share);
  }

  #isOutOfPatience(): boolean {
    const { epochs, best, index } = this.#progress;
    return index === 0 && isOutOfPatience(epochs, best, this.config);
  }

  /** Goes back to the best epoch, if the configuration asks for it: the run's result is its checkpoint. */
  async #takeBest(): Promise<void> {
    const { best, step, epochs } = this.#progress;
    if (best === undefined || best.step === step) return;
    const { params } = this.#state;
    const stored = this.#programs.stored(this.#state);
    this.#state = await readResult(this.config.output, this.#state, stored, this.group.rank);
    disposeTree(params);
    const early = step < this.#totalSteps ? `ended early after epoch ${epochs.at(-1)!.epoch}: ` : "";
    const { best: measure } = this.config.training;
    this.#note(
      `${early}epoch ${best.epoch} had the best validation ${measure} (${best.value.toFixed(4)}) and is the result`,
    );
  }

  async #endEpoch(epoch: number, whole: boolean): Promise<void> {
    const progress = this.#progress;
    const taken = whole ? this.#stepsPerEpoch : progress.index;
    const result = this.task.samples.validation === null ? null : this.#evaluate("validation");
    const row: EpochRow = {
      epoch: epoch + 1,
      trainLoss: progress.samples === 0 ? Number.NaN : progress.lossSum / progress.samples,
      seconds: progress.seconds,
      valLoss: result?.loss ?? null,
      valAccuracy: result?.accuracy ?? null,
      valF1: result?.entities?.f1 ?? result?.scores?.f1 ?? null,
      ...(result?.regression !== undefined && {
        valPearson: result.regression.pearson,
        valSpearman: result.regression.spearman,
      }),
    };
    this.#records.write("epoch", {
      epoch: row.epoch,
      seconds: row.seconds,
      trainLoss: row.trainLoss,
      ...(result !== null && { valLoss: result.loss }),
      ...(result?.accuracy != null && { valAccuracy: result.accuracy }),
      samples: Math.round(progress.samples / this.group.size),
      steps: taken,
      lastStep: progress.step,
    });
    // An epoch that a limit cut short and a resumed run finished has one row.
    progress.epochs = [...progress.epochs.filter(({ epoch: known }) => known !== row.epoch), row];
    progress.best = bestAfter(progress.best, row, progress.step, this.config);
    if (whole) Object.assign(progress, { lossSum: 0, samples: 0, seconds: 0 });
    await this.#save();
    if (this.#main) {
      writeMetrics(this.config.output, progress.epochs);
      this.options.onEpoch?.(row, taken, this.#stepsPerEpoch);
    }
  }

  async #save(): Promise<void> {
    this.#settle();
    this.#records.flush();
    const { output, checkpoint } = this.config;
    if (this.#programs.placement.isSplit) {
      // One checkpoint is written at a time; its files are written while the next steps run.
      await this.#saving;
      const stored = this.#programs.stored(this.#state);
      this.#saving = startShardedCheckpoint(output, stored, this.#progress, checkpoint.keep, this.group);
      // The error of a failed checkpoint is thrown where it is waited for.
      this.#saving.catch(() => {});
    } else if (this.#main) await writeCheckpoint(output, this.#state, this.#progress, checkpoint.keep);
    // Synchronize: otherwise a rank that runs ahead would wait inside its next step and record it as slow.
    this.group.barrier();
    this.#journal.open();
  }

  #note(text: string): void {
    if (!this.#main) return;
    this.options.onNote?.(text);
    if (this.#records === undefined) this.#early.push(text);
    else this.#record(text);
  }

  #record(note: string): void {
    this.#records.write("event", { name: "note", level: "info", message: note });
  }

  #end(status: RunStatus, more: { message?: string; test?: EvaluationResult }): void {
    const { message } = more;
    const seconds = (performance.now() - this.#begun) / 1000;
    this.#records.write("end", { status, seconds, ...(message !== undefined && { message }) });
    this.#records.flush();
    if (this.#main)
      writeTrainingRunFile(this.config.output, this.#head, status, {
        seconds,
        endedAt: Date.now() / 1000,
        ...(message !== undefined && { message }),
        ...(more.test?.accuracy != null && { test: { ...more.test, accuracy: more.test.accuracy } }),
      });
  }

  fail(error: Error): void {
    try {
      this.#end("failed", { message: error.message });
    } catch {
      // Report the first error only; this one may fail too, e.g. on a full disk.
    }
  }

  close(): void {
    this.#loader?.close();
  }
}
