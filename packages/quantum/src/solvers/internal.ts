// Solver functions for other folders of this package.
export { commutatorOf, dissipator, hermitianBasis, realMatrix } from "./hermitian.js";
