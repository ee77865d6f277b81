// Pictures of states, evolutions and devices as SVG, readable on light and dark pages.
export { type ErrorShare, errorBudgetSvg, levelsSvg, populationsSvg, pulsesSvg } from "./curves.js";
export { blochSvg, blochVector, phaseSpaceSvg } from "./states.js";
