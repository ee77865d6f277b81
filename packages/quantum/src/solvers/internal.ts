// What other folders of this package use of the solvers beside their public face.
export { commutator, dissipator, hermitianBasis, realMatrix } from "./hermitian.js";
