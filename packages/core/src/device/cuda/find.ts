// Finds NVIDIA's shared libraries on this machine: by name, under $CUDA_HOME, in the system's folders, and in the
// nvidia-* wheels of Python environments. Knows nothing of what is in them.
import { existsSync, readdirSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import koffi from "koffi";
import { settings } from "../../settings/index.js";

export type Library = ReturnType<typeof koffi.load>;

export interface FoundLibrary {
  path: string;
  library: Library;
}

/** Releases of CUDA in the order in which they are tried, and the versions under which their libraries go. */
const releases = ["13", "12", "11"] as const;
type Base =
  | "cuda"
  | "nvrtc"
  | "cublas"
  | "cublasLt"
  | "cusolver"
  | "cudnn"
  | "cufft"
  | "nccl"
  | "nvidia-ml"
  | "nvToolsExt"
  | "nvtx3interop";

/** Sonames do not follow the release everywhere: cuSOLVER is one behind, the driver and NCCL have their own numbers. */
const sonames: Record<Base, readonly string[]> = {
  cuda: ["1", ""],
  nvrtc: [...releases, "11.2", "11.1", "11.0", ""],
  cublas: [...releases, ""],
  cublasLt: [...releases, ""],
  cusolver: ["12", "11", "10", ""],
  cudnn: ["9", "8", ""],
  cufft: ["12", "11", "10", ""],
  nccl: ["2", ""],
  "nvidia-ml": ["1", ""],
  nvToolsExt: ["1", ""],
  nvtx3interop: ["1", ""],
};

/** What a library opens by its name, without a path. In a wheel that finds nothing, unless it is loaded already. */
const companions: Partial<Record<Base, string>> = { nvrtc: "libnvrtc-builtins.so" };

const listed = (folder: string): string[] => {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
};

/** Python environments: the active ones, those of the interpreters on PATH, the system's. */
function environments(): string[] {
  const found = [process.env.VIRTUAL_ENV, process.env.CONDA_PREFIX];
  for (const folder of (process.env.PATH ?? "").split(delimiter))
    if (folder.endsWith("/bin") && existsSync(join(folder, "python3"))) found.push(folder.slice(0, -"/bin".length));
  found.push("/usr/local", "/usr");
  return [...new Set(found.filter((folder) => folder !== undefined && folder !== ""))] as string[];
}

/** The lib folders of a Python environment's nvidia-* wheels: one per library up to CUDA 12, one per release since 13. */
function wheelFolders(environment: string): string[] {
  return ["lib", "lib64"].flatMap((lib) =>
    listed(join(environment, lib))
      .filter((name) => name.startsWith("python"))
      .flatMap((python) => ["site-packages", "dist-packages"].map((p) => join(environment, lib, python, p, "nvidia")))
      .flatMap((nvidia) => listed(nvidia).map((part) => join(nvidia, part, "lib"))),
  );
}

/** Folders that may hold CUDA libraries, in the order of the search. */
export function searchFolders(): string[] {
  const folders: string[] = [];
  const homes = [process.env.CUDA_HOME, process.env.CUDA_PATH, "/usr/local/cuda"];
  for (const release of releases) homes.push(`/usr/local/cuda-${release}`);
  for (const home of homes)
    if (home !== undefined && home !== "") folders.push(join(home, "lib64"), join(home, "targets/x86_64-linux/lib"));
  folders.push("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib");
  folders.push(...environments().flatMap(wheelFolders));
  return folders.filter((folder) => existsSync(folder));
}

let folders: string[] | null = null;
const tried = new Map<Base, FoundLibrary | null>();

/** Loads a library, newest of the known versions first; null where there is none. WEFT_CUDA_WITHOUT hides some by name. */
export function findLibrary(base: Base): FoundLibrary | null {
  const cached = tried.get(base);
  if (cached !== undefined) return cached;
  const names = sonames[base].map((version) => (version === "" ? `lib${base}.so` : `lib${base}.so.${version}`));
  const hidden = (settings.cudaWithout.get() ?? "").split(",").includes(base);
  folders ??= searchFolders();
  const places = folders.flatMap((folder) => names.map((name) => join(folder, name)).filter(existsSync));
  let found: FoundLibrary | null = null;
  for (const path of hidden ? [] : [...names, ...places]) {
    try {
      const companion = companions[base];
      const beside = companion !== undefined && path.includes("/") ? listed(dirname(path)) : [];
      for (const name of beside) if (name.startsWith(companion!)) koffi.load(join(dirname(path), name));
      found = { path, library: koffi.load(path) };
      break;
    } catch {
      // Not this one: the next candidate, or none.
    }
  }
  tried.set(base, found);
  return found;
}
