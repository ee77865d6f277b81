// The JSON Schema of each format, generated from its zod schema. scripts/write-schemas.mjs writes them.
import { z } from "zod";
import { metricsRowSchema } from "./metrics.js";
import { recordSchema } from "./records.js";
import { pointsSchema, runFileSchema, studyFileSchema, studyYamlSchema } from "./study.js";
import { tapeLineSchema } from "./tape.js";

const formats: Record<string, [z.ZodType, string]> = {
  record: [recordSchema, "One line of a record file (records.jsonl, rankK.jsonl)"],
  run: [runFileSchema, "run.json"],
  study: [studyFileSchema, "study.json"],
  "study-yaml": [studyYamlSchema, "study.yaml"],
  points: [pointsSchema, "Points file of weft predict"],
  tape: [tapeLineSchema, "One line of a tape"],
  metrics: [metricsRowSchema, "One row of metrics.csv"],
};

/** The JSON Schema files of the package: name without extension, and content. Unknown properties are allowed everywhere. */
export function jsonSchemas(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(formats).map(([name, [schema, title]]) => {
      const { $schema, ...body } = z.toJSONSchema(schema, { io: "input" });
      return [name, `${JSON.stringify({ $schema, title, ...body }, null, 1)}\n`];
    }),
  );
}
