// Solver functions for other folders of this package.
export { commutator, dissipator, hermitianBasis, realMatrix } from "./hermitian.js";
