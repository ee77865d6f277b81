// Writes packages/formats/schemas/*.json from the zod schemas of the built package: node packages/formats/scripts/write-schemas.mjs
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { jsonSchemas } from "../dist/index.js";

const folder = fileURLToPath(new URL("../schemas/", import.meta.url));
mkdirSync(folder, { recursive: true });
for (const [name, text] of Object.entries(jsonSchemas())) writeFileSync(`${folder}${name}.json`, text);
