// What an actor of Ray does with certificates: without Ray, whose functions are replaced.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const skip = spawnSync("python3", ["--version"]).status === 0 ? false : "needs Python";

test("certificates of an actor that is killed are nowhere", { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-actor-"));
  try {
    const temporary = join(folder, "tmp");
    mkdirSync(temporary);
    for (const [module, text] of [
      ["ray", "from . import util"],
      ["ray/util", "def get_node_ip_address(): return '127.0.0.1'"],
      ["ray/util/placement_group", "placement_group = remove_placement_group = None"],
      ["ray/util/scheduling_strategies", "PlacementGroupSchedulingStrategy = None"],
    ]) {
      mkdirSync(join(folder, module));
      writeFileSync(join(folder, module, "__init__.py"), text);
    }
    const driver = readFileSync(fileURLToPath(new URL("../assets/weft_ray.py", import.meta.url)), "utf8");
    const [definitions] = driver.split("\ncode = main()");
    const look = `
      const { readFileSync, statSync } = require("node:fs");
      const path = process.env.WEFT_TLS_KEY;
      const read = () => readFileSync(path, "utf8");
      console.log(read() + read(), (statSync(path).mode & 0o777).toString(8));`;
    const program = `${definitions}
files = {"WEFT_TLS_CERT": "certificate", "WEFT_TLS_KEY": "secret"}
process = Process(0, [${JSON.stringify(process.execPath)}, "-e", ${JSON.stringify(look)}], {}, files, "/")
sys.stdout.write(process.lines()[0])
sys.stdout.flush()
os.kill(os.getpid(), 9)`;
    const env = { ...process.env, PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: "1", TMPDIR: temporary };
    const { stdout, stderr, signal } = spawnSync("python3", ["-c", program], { encoding: "utf8", env });
    assert.equal(stdout, "secretsecret 600\n", stderr);
    assert.equal(signal, "SIGKILL");
    assert.deepEqual(readdirSync(temporary), []);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
