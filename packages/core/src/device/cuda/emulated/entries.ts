// Entry points of a generated program for the emulator: for every kernel a function that takes packed arguments.
/** For every kernel of a program a function that takes packed arguments, as the driver does. */
export function emulatorEntries(source: string): string {
  const entries: string[] = [];
  for (const match of expandMacros(source).matchAll(
    /extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(([^)]*)\)/g,
  )) {
    const [, name, list] = match;
    const types = list.split(",").map((parameter) => parameter.trim().replace(/\s*\b\w+$/, ""));
    let word = 0;
    const args = types.map((type) => {
      const at = `(w + ${word})`;
      word += 1;
      return `*(${type.replace(/^const (?:__grid_constant__ )?(?=Args|w_)/, "")}*)${at}`;
    });
    entries.push(
      `static void w_call_${name}(void* p) { long long* w = (long long*)p; (void)w; ${name}(${args.join(", ")}); }\n` +
        `extern "C" void w_launch_${name}(int gx, int gy, int threads, int shared, void* p) { w_grid(w_call_${name}, p, gx, gy, threads, shared); }`,
    );
  }
  return entries.join("\n");
}

/** Kernels that a macro defines for every dtype (`W_SORT(f32, ...)`) as text; parameters after the name and N, if it has one, are types. */
function expandMacros(source: string): string {
  const macros = /#define (W_\w+)\(name, (?:N, )?(T(?:, \w+)*)\)([\s\S]*?[^\\])\n/g;
  const expanded: string[] = [source.replace(macros, "")];
  for (const [, macro, list, body] of source.matchAll(macros)) {
    const parameters = list.split(", ");
    const types = parameters.map(() => "(\\w+)").join(", ");
    for (const [, name, ...given] of source.matchAll(
      new RegExp(`^${macro}\\((\\w+), (?:[^\\n]*, )?${types}\\)$`, "gm"),
    )) {
      const text = body.replaceAll("\\\n", "\n").replaceAll("##name", name);
      expanded.push(parameters.reduce((made, T, k) => made.replace(new RegExp(`\\b${T}\\b`, "g"), given[k]), text));
    }
  }
  return expanded.join("\n");
}
