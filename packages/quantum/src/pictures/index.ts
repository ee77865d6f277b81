// Pictures of states, evolutions and devices as SVG, readable on light and dark pages.
export {
  type Curve,
  type ErrorShare,
  errorBudgetSvg,
  type LevelColumn,
  levelsSvg,
  populationsSvg,
  pulsesSvg,
} from "./curves.js";
export { blochSvg, blochVector, phaseSpaceSvg } from "./states.js";
