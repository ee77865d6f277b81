// Hash-tokenising by Weft, from texts in memory to ids, as the Python side does.
import * as data from "@weft/train/data";

const table = await data.findSplit("imdb", "train", process.argv[2]).read();
const tokenizer = data.hashTokenizer(20000);
const start = performance.now();
const { ids } = data.tokenize(table, tokenizer);
const seconds = (performance.now() - start) / 1e3;
let sum = 0;
for (const id of ids) sum += id;
console.log(JSON.stringify({ seconds, sum, texts: table.rows }));
