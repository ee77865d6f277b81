// @ts-check
// Writes flowers.csv, 300 invented flowers of three kinds with four measurements each, and notes.csv, 300 short texts on three topics.
import { writeFileSync } from "node:fs";
import { join } from "node:path";

const kinds = { alpine: [5.0, 3.4, 1.5, 0.3], meadow: [5.9, 2.8, 4.3, 1.3], marsh: [6.6, 3.0, 5.5, 2.0] };
let state = 7;
/** Sum of twelve uniform numbers: nearly normal. */
function normal() {
  let sum = -6;
  for (let i = 0; i < 12; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    sum += state / 2 ** 32;
  }
  return sum;
}
const rows = Array.from({ length: 300 }, (_, i) => {
  const [kind, means] = Object.entries(kinds)[i % 3];
  return [...means.map((mean) => Math.max(0.1, mean + 0.6 * normal()).toFixed(1)), kind].join();
});
const header = "sepal_length,sepal_width,petal_length,petal_width,kind";
writeFileSync(join(import.meta.dirname, "flowers.csv"), `${[header, ...rows].join("\n")}\n`);

const topics = {
  weather: ["rain", "wind", "cloud", "storm", "sun", "frost", "mist", "thunder"],
  kitchen: ["salt", "oven", "dough", "butter", "onion", "soup", "knife", "flour"],
  sports: ["goal", "team", "coach", "race", "ball", "score", "match", "player"],
};
const others = ["the", "a", "and", "today", "with", "very", "soon", "again", "some", "after"];
const pick = (/** @type {readonly string[]} */ words) => words[Math.floor((normal() + 6) * 1e6) % words.length];
const notes = Array.from({ length: 300 }, (_, i) => {
  const [topic, words] = Object.entries(topics)[i % 3];
  return `${Array.from({ length: 7 }, (_, k) => pick(k % 3 === 1 ? words : others)).join(" ")},${topic}`;
});
writeFileSync(join(import.meta.dirname, "notes.csv"), `${["text,topic", ...notes].join("\n")}\n`);
