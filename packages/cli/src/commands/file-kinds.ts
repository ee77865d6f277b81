// The kinds of YAML files that Weft reads: how each is recognized, its JSON Schema, and the check of its reader. `weft schema`,
// `weft lint`, `weft init` and the tests use this table.

import { basename } from "node:path";
import { readText } from "@weft/formats/file";
import { setValue, valueOf } from "@weft/formats/internal";
import { parseYaml } from "@weft/formats/yaml";

/** One kind of file. */
interface FileKind {
  /** What it is for, as `weft schema` lists it. */
  description: string;
  /** Whether a parsed file is of this kind and of no other program. */
  recognizes: (file: unknown) => boolean;
  schema: () => Promise<object>;
  /** Reads the file as the command does; throws if it is wrong. Returns what was translated. */
  check: (path: string) => Promise<readonly string[]>;
}

const has = (file: unknown, ...keys: string[]): boolean => keys.some((key) => valueOf(file, key) !== undefined);
const titled = (title: string, schema: object): object => ({ title, ...schema });

export const fileKinds: Readonly<Record<string, FileKind>> = {
  train: {
    description: "configuration of weft train and weft tune",
    recognizes: (file) =>
      has(
        file,
        "training.global_batch",
        "training.batch_per_rank",
        "distributed.cores_per_rank",
        "optimizer.learning_rate",
      ) &&
      has(file, "training") &&
      has(file, "model"),
    schema: async () => (await import("@weft/train/internal/config")).configJsonSchema(),
    check: async (path) => {
      const { loadAnyConfig } = await import("@weft/train/internal/config");
      const lines: string[] = [];
      loadAnyConfig(path, { onTranslated: (found) => lines.push(...found) });
      return lines;
    },
  },
  "quantum-gate": {
    description: "specification of weft quantum run, optimize, profile and pictures",
    recognizes: (file) => has(file, "device.parts", "device.chain"),
    schema: async () =>
      titled("Gate specification of weft quantum", (await import("@weft/quantum/internal")).gateJsonSchema()),
    check: async (path) => {
      const { GateProblem, parseGateSpec } = await import("@weft/quantum");
      new GateProblem(parseGateSpec(readText(path), basename(path)));
      return [];
    },
  },
  "quantum-control": {
    description: "pulse optimization of weft quantum optimize",
    recognizes: (file) =>
      has(file, "problem.kind") && has(file, "rates", "tasks") && !has(file, "inner", "batch", "preset", "iterations"),
    schema: async () =>
      titled("Pulse optimization of weft quantum", (await import("@weft/quantum/internal")).controlJsonSchema()),
    check: async (path) => {
      (await import("@weft/quantum")).parseControlFile(readText(path), basename(path));
      return [];
    },
  },
  "quantum-meta": {
    description: "settings of weft quantum meta",
    recognizes: (file) => has(file, "inner.steps", "inner.rate", "validation.tasks", "tasks_per_batch", "dt_training"),
    schema: async () =>
      titled("Settings of weft quantum meta", (await import("@weft/quantum/internal")).metaJsonSchema()),
    check: async (path) => {
      const lines: string[] = [];
      const onTranslated = (found: readonly string[]): void => void lines.push(...found);
      (await import("@weft/quantum")).parseMetaFile(readText(path), basename(path), {}, { onTranslated });
      return lines;
    },
  },
  study: {
    description: "study.yaml: which runs make up a study, for weft analyze",
    recognizes: (file) => Array.isArray(valueOf(file, "studies")),
    schema: async () => JSON.parse((await import("@weft/formats")).jsonSchemas()["study-yaml"]) as object,
    check: async (path) => {
      const { readStudies } = await import("@weft/lab/internal/import");
      readStudies([path]);
      return [];
    },
  },
  sharding: {
    description: "sharding rules of WEFT_SHARD_RULES",
    recognizes: (file) => has(file, "scopes"),
    schema: async () => shardingSchema(),
    check: async (path) => {
      const { parseRules } = await import("@weft/core/internal/shard");
      parseRules(parseYaml(readText(path)));
      return [];
    },
  },
};

/** The kind of a parsed file; null if it belongs to another program. */
export const fileKindOf = (file: unknown): string | null =>
  Object.entries(fileKinds).find(([, kind]) => kind.recognizes(file))?.[0] ?? null;

/** The rules are read by the core, which has no zod. */
function shardingSchema(): object {
  const rule = {
    anyOf: [
      {
        type: "object",
        properties: {
          axis: { type: ["integer", "null"] },
          mesh: { type: "string" },
          devices: { type: "integer", minimum: 1 },
        },
      },
    ],
  };
  const scopes: Record<string, unknown> = {
    type: "object",
    additionalProperties: {
      type: "object",
      properties: { shard: rule, backward: rule, scopes: { $ref: "#/properties/scopes" } },
      additionalProperties: false,
    },
  };
  const schema: Record<string, unknown> = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Sharding rules",
    type: "object",
    required: ["scopes"],
  };
  setValue(schema, "properties.scopes", scopes);
  return schema;
}
