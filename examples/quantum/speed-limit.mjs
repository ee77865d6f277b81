// The speed limit of a Landau-Zener crossing: with H = w sigma_x + c(t) sigma_z and a bounded control, the transfer between the two
// levels needs at least pi / (2 w) (T. Caneva et al., 2009; G. Hegerfeldt, 2013). The search finds this time.
import { tensor } from "@weft/core";
import {
  basisState,
  hamiltonian,
  minimize,
  pulsesSvg,
  schrodinger,
  shortestDuration,
  sigmaX,
  sigmaZ,
  stateInfidelity,
} from "@weft/quantum";
import { main } from "./common.mjs";

export function solve({ w = 0.5, segments = 16, bound = 4, precision = 0.01, target = 1e-4 } = {}) {
  const limit = Math.PI / (2 * w);
  const loss = ({ control }, duration) => {
    const h = hamiltonian({ static: sigmaX.scale(w), drives: [sigmaZ], amplitudes: control.unsqueeze(1) });
    const { final } = schrodinger(h, basisState(2, 0), { duration, steps: segments, method: "pwcExpm" });
    return stateInfidelity(final, basisState(2, 1).tensor("complex128").squeeze(1));
  };
  // A sweep through the crossing, as an adiabatic passage would do it.
  const sweep = Array.from({ length: segments }, (_, k) => 1 - (2 * (k + 0.5)) / segments);
  const found = shortestDuration(
    (duration, start) => {
      const first = start ?? { control: tensor(sweep, { dtype: "float64" }) };
      const { value, params } = minimize((p) => loss(p, duration), first, {
        bounds: { control: [-bound, bound] },
        iterations: 100,
        target: target / 2,
      });
      return { infidelity: Math.max(0, value), params };
    },
    { target, low: limit / 3, high: 2 * limit, precision },
  );
  const values = Array.from(found.params.control.dataSync(), Number);
  const times = values.map((_, k) => ((k + 0.5) / segments) * found.duration);
  return {
    duration: found.duration,
    speedLimit: limit,
    infidelity: found.infidelity,
    picture: pulsesSvg([{ name: "control", x: times, y: values }], "Control at the speed limit"),
  };
}

await main(import.meta.url, solve);
