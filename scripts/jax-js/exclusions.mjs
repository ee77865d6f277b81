// Tests of jax-js that ask for its own choice of semantics, with the choice. Everything else that fails counts as a failure.

/** [file, part of the name of the test, why Weft differs]. */
const choices = [
  [
    "refcount.test",
    "",
    "reference counting: operands are consumed unless `.ref` is used; Weft's tensors are never consumed",
  ],
  ["devices.test", "", "arrays of one program on several devices at once; Weft runs a program on the current device"],
  ["", "makeJaxpr()", "the text of its intermediate representation"],
  ["conv.test", "lowers to ordinary primitives", "the text of its intermediate representation"],
  [
    "dtype.test",
    "weak types",
    "weak types of arrays; in Weft only JavaScript numbers are weak, as in the Array API standard",
  ],
  [
    "dtype.test",
    "resultType weak numbers",
    "weak types: an integer array with 3.5 stays an integer array; Weft gives float32",
  ],
  [
    "dtype.test",
    "resultType matches promotion",
    "weak types: a boolean with the number 2 becomes uint32; Weft gives int32",
  ],
  ["dtype.test", "uint32 and int32", "uint32 with int32 gives int32; int64 in Weft, NumPy and the Array API standard"],
  [
    "dtype.test",
    "resultType promotes dtype",
    "uint32 with int32 gives int32; int64 in Weft, NumPy and the Array API standard",
  ],
  ["lax-linalg.test", "eigenvalues unsorted", "the order in which its Jacobi iteration leaves eigenvalues"],
  ["numpy-linalg.test", "rejects fullMatrices", "refuses full matrices of non-square SVDs, which Weft computes"],
  ["numpy-linalg.test", "non-supported norms", "refuses norms of singular values, which Weft computes"],
  [
    "numpy.test",
    "works with non-integer step",
    "a range with a step of 0.2 is int32 by default, all zeros; NumPy and Weft give floats",
  ],
  [
    "numpy.test",
    "sign() works with NaN",
    "a test that is marked as failing there: the sign of NaN is wrong; it is NaN in Weft and NumPy",
  ],
  ["numpy.test", "modf() promotes integer", "the fraction of a negative whole number is +0; -0 in Weft, NumPy and C"],
  [
    "numpy.test",
    "cbrt() works with jvp",
    "the derivative of the cube root at 0 is NaN; infinite in Weft, JAX and PyTorch's powers",
  ],
  ["numpy.test", "power of zero", "0 to the power of 0 is NaN; 1 in Weft, NumPy and IEEE 754"],
  ["numpy.test", "copysign with zero", "copysign(5, 0) is 0; 5 in Weft, NumPy and C"],
  [
    "numpy.test",
    "rejects incompatible coefficient batches",
    "refuses to add a polynomial to a batch of shorter ones, which Weft does",
  ],
  ["random.test", "random bits", "JAX's stream of random bits; Weft has a counter-based generator of its own"],
  ["random.test", "consistent with jax", "JAX's stream of random bits; Weft has a counter-based generator of its own"],
  ["random.test", "can vmap a key", "the layout of a key, [0, seed]; Weft derives keys from seeds on the host"],
];

/** Why a failed test does not count, or null. */
export function excluded({ file, name }) {
  const found = choices.find(([inFile, inName]) => file.includes(inFile) && name.includes(inName));
  return found === undefined ? null : found[2];
}
