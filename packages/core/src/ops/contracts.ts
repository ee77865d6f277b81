// Contract of every op on its operands and attributes, as op.ts defines it: one row per op. The verifier checks graphs with this
// table. Results are defined by the shape rules.
import {
  type Aval,
  type BinaryFn,
  bytesOf,
  type GraphFn,
  isComplex,
  isDType,
  isFloat,
  isHalf,
  isInexact,
  kindOf,
  type Node,
  numel,
  type OpAttrs,
  type OpName,
  outputAvals,
  precisions,
  sameShape,
  showShape,
  type UnaryFn,
  unboundedLength,
} from "../graph/index.js";
import { attentionProblem } from "./contracts-attention.js";
import {
  anyDType,
  checkAxes,
  checkAxis,
  checkIndices,
  checkLinalg,
  checkMatrix,
  checkOperandDType,
  checkPerAxis,
  checkSameAval,
  checkSameDType,
  checkSameShape,
  checkSquare,
  checkSystem,
  type DTypeTest,
  demand,
  demandShape,
  isCount,
  isLinalg,
  isLogical,
  isNumber,
  isReal,
  leading,
} from "./contracts-checks.js";
import { checkCollective } from "./contracts-collective.js";

type Contract<K extends OpName> = (inputs: readonly Node[], attrs: OpAttrs[K]) => void;

interface Row<K extends OpName> {
  /** Number of operands; null if it varies. */
  operands: number | null;
  check?: Contract<K>;
}

const unaryDTypes: Record<UnaryFn, DTypeTest> = {
  neg: isNumber,
  abs: anyDType,
  sign: anyDType,
  floor: isReal,
  ceil: isReal,
  round: isReal,
  trunc: isReal,
  sqrt: isInexact,
  rsqrt: isInexact,
  reciprocal: isInexact,
  exp: isInexact,
  expm1: isInexact,
  log: isInexact,
  log1p: isInexact,
  sin: isInexact,
  cos: isInexact,
  tan: isInexact,
  asin: isInexact,
  acos: isInexact,
  atan: isInexact,
  sinh: isInexact,
  cosh: isInexact,
  tanh: isInexact,
  asinh: isInexact,
  acosh: isInexact,
  atanh: isInexact,
  erf: isFloat,
  erfc: isFloat,
  not: isLogical,
  isnan: anyDType,
  isfinite: anyDType,
  signbit: isFloat,
  real: anyDType,
  imag: anyDType,
  conj: anyDType,
};

const binaryDTypes: Record<BinaryFn, DTypeTest> = {
  add: anyDType,
  sub: anyDType,
  mul: anyDType,
  div: isInexact,
  pow: anyDType,
  mod: isReal,
  floordiv: isReal,
  max: isReal,
  min: isReal,
  atan2: isFloat,
  hypot: isFloat,
  copysign: isFloat,
  nextafter: (dtype) => isFloat(dtype) && !isHalf(dtype),
  eq: anyDType,
  ne: anyDType,
  lt: isReal,
  le: isReal,
  and: isLogical,
  or: isLogical,
  xor: isLogical,
  lshift: (dtype) => kindOf(dtype) === "int",
  rshift: (dtype) => kindOf(dtype) === "int",
  complex: isFloat,
};

/** Three tensors of one rank, whose batch and channel dimensions fit. */
function checkConv([first, second]: readonly Node[], attrs: OpAttrs["conv"]): void {
  const { kind, size, stride, dilation, low, groups, channelsLast, precision } = attrs;
  demand(precision === undefined || precisions.includes(precision), `there is no precision ${precision}`);
  checkSameDType(first, second);
  checkOperandDType("conv", isNumber, first.dtype);
  const spatial = first.shape.length - 2;
  demand(
    spatial >= 1 && spatial <= 3 && second.shape.length === first.shape.length,
    `${showShape(first.shape)} and ${showShape(second.shape)} are not operands with one to three spatial axes`,
  );
  for (const [name, list] of Object.entries({ size, stride, dilation, low }))
    demand(
      list.length === spatial && list.every((n) => isCount(n) && n < 2 ** 31) && (name === "low" || !list.includes(0)),
      `${name} [${list}] is not ${spatial} whole numbers`,
    );
  demand(isCount(groups) && groups >= 1, `${groups} groups`);
  const axis = channelsLast ? spatial + 1 : 1;
  const [lead, inner] = [first, second].map(({ shape }) => [shape[0], shape[axis]]);
  const fits =
    kind === "forward"
      ? lead[1] === inner[1] * groups && inner[0] % groups === 0
      : kind === "input"
        ? lead[1] === inner[0] && inner[0] % groups === 0
        : lead[0] === inner[0] && lead[1] % groups === 0 && inner[1] % groups === 0;
  demand(fits, `${showShape(first.shape)} and ${showShape(second.shape)} do not fit in ${groups} groups`);
}

function checkGather([x, indices]: readonly Node[], { axis, batch }: OpAttrs["gather"]): void {
  checkIndices(indices);
  checkAxis(axis, x.shape);
  demand(isCount(batch) && batch <= axis, `batch ${batch} must be at most the axis ${axis}`);
  demand(
    indices.shape.length >= batch && sameShape(indices.shape.slice(0, batch), x.shape.slice(0, batch)),
    `the first ${batch} dimensions of ${showShape(x.shape)} and the indices ${showShape(indices.shape)} differ`,
  );
}

function checkScatter(inputs: readonly Node[], attrs: OpAttrs["scatterAdd"]): void {
  checkGather(inputs, attrs);
  const [base, indices, updates] = inputs;
  checkSameDType(base, updates);
  const { axis, batch } = attrs;
  const expected = [...base.shape.slice(0, axis), ...indices.shape.slice(batch), ...base.shape.slice(axis + 1)];
  demand(
    sameShape(updates.shape, expected),
    `updates are ${showShape(updates.shape)} and should be ${showShape(expected)}`,
  );
}

/** Numbers that devices compare and exchange at once. */
const isWideReal: DTypeTest = (dtype) => isReal(dtype) && dtype !== "bool" && bytesOf(dtype) >= 4;

function checkBody(body: GraphFn, expected: readonly Aval[]): void {
  demand(
    body.params.length === expected.length,
    `its body has ${body.params.length} parameters for ${expected.length} operands`,
  );
  body.params.forEach((param, i) => {
    checkSameAval(`parameter ${i} of its body`, param, expected[i]);
  });
}

function checkScan(inputs: readonly Node[], attrs: OpAttrs["scan"]): void {
  const { body, consts, carries, length, reverse, stop } = attrs;
  demand(isCount(length), `its length ${length} is not a whole number >= 0`);
  demand(
    isCount(consts) && isCount(carries) && consts + carries <= inputs.length,
    `${consts} constants and ${carries} carries are more than its ${inputs.length} operands`,
  );
  const perStep = inputs.map((input, i) => {
    if (i < consts + carries) return input;
    demand(input.shape[0] === length, `operand ${i} is ${showShape(input.shape)} for ${length} steps`);
    return { shape: input.shape.slice(1), dtype: input.dtype };
  });
  checkBody(body, perStep);
  demand(body.outputs.length >= carries, `its body gives ${body.outputs.length} results for ${carries} carries`);
  body.outputs.slice(0, carries).forEach((output, i) => {
    checkSameAval(`carry ${i} of its body`, output, inputs[consts + i]);
  });
  if (stop === undefined) return;
  demand(length <= unboundedLength, `its length ${length} is more than ${unboundedLength}`);
  if (stop === "while") {
    demand(!reverse, "a loop with a predicate runs forward");
    demand(carries > 0 && inputs[consts].dtype === "bool", "carry 0, its predicate, is not bool");
  } else demand(consts > 0 && inputs[0].dtype === "int32", "constant 0, its number of steps, is not int32");
}

function checkConstant({ value, dtype }: OpAttrs["const"]): void {
  const kind = kindOf(dtype);
  const fits =
    typeof value === "number"
      ? (kind !== "int" || Number.isSafeInteger(value)) && (kind !== "bool" || value === 0 || value === 1)
      : kind === "complex";
  demand(fits, `${JSON.stringify(value)} is not a value of ${dtype}`);
}

const randomDTypes: Record<OpAttrs["random"]["kind"], DTypeTest> = {
  bits: (dtype) => dtype === "int32",
  uniform: isFloat,
  normal: isFloat,
  dropoutMask: (dtype) => dtype === "bool",
};

const contracts: { [K in OpName]: Row<K> } = {
  input: { operands: 0 },
  data: { operands: 0 },
  const: { operands: 0, check: (_, attrs) => checkConstant(attrs) },
  iota: {
    operands: 0,
    check: (_, { shape, axis, dtype }) => {
      checkAxis(axis, shape);
      checkOperandDType("iota", isNumber, dtype);
    },
  },
  random: {
    operands: 1,
    check: ([keys], { kind, shape, dtype, within, threshold }) => {
      checkIndices(keys);
      demand(keys.shape[keys.shape.length - 1] === 2, `keys are [..., 2], not ${showShape(keys.shape)}`);
      demandShape(shape);
      checkOperandDType(`random ${kind}`, randomDTypes[kind], dtype);
      const whole = threshold !== undefined && Number.isInteger(threshold) && threshold >= 0 && threshold <= 65535;
      demand(
        kind === "dropoutMask" ? whole : threshold === undefined,
        `a threshold of ${threshold} for random ${kind}`,
      );
      if (within === undefined) return;
      demandShape(within.shape);
      checkPerAxis("start", within.start, shape);
      demand(
        within.shape.length === shape.length && shape.every((d, i) => within.start[i] + d <= within.shape[i]),
        `${showShape(shape)} from [${within.start}] is not within ${showShape(within.shape)}`,
      );
    },
  },
  alias: { operands: 1 },
  barrier: { operands: 1 },
  pin: {
    operands: 1,
    check: ([x], { dims, backward }) => {
      for (const list of [dims, backward])
        demand(
          list.length === x.shape.length,
          `${list.length} sharding constraints for the dimensions of ${showShape(x.shape)}`,
        );
    },
  },
  unary: { operands: 1, check: ([x], { fn }) => checkOperandDType(fn, unaryDTypes[fn], x.dtype) },
  binary: {
    operands: 2,
    check: ([a, b], { fn }) => {
      checkSameShape(a, b);
      checkSameDType(a, b);
      checkOperandDType(fn, binaryDTypes[fn], a.dtype);
    },
  },
  where: {
    operands: 3,
    check: ([condition, a, b]) => {
      demand(condition.dtype === "bool", `the condition is ${condition.dtype} and should be bool`);
      checkSameShape(condition, a);
      checkSameShape(a, b);
      checkSameDType(a, b);
    },
  },
  cast: { operands: 1, check: (_, { dtype }) => demand(isDType(dtype), `${String(dtype)} is no dtype`) },
  reshape: {
    operands: 1,
    check: ([x], { shape }) => {
      demandShape(shape);
      demand(numel(shape) === numel(x.shape), `${showShape(x.shape)} does not fill ${showShape(shape)}`);
    },
  },
  permute: {
    operands: 1,
    check: ([x], { axes }) => {
      checkAxes(axes, x.shape);
      demand(axes.length === x.shape.length, `the axes [${axes}] are not all of ${showShape(x.shape)}`);
    },
  },
  expand: {
    operands: 1,
    check: ([x], { shape }) => {
      demandShape(shape);
      const grows = x.shape.length === shape.length && x.shape.every((d, i) => d === 1 || d === shape[i]);
      demand(grows, `${showShape(x.shape)} does not grow to ${showShape(shape)}`);
    },
  },
  slice: {
    operands: 1,
    check: ([x], { start, stop, step }) => {
      checkPerAxis("start", start, x.shape);
      checkPerAxis("stop", stop, x.shape);
      checkPerAxis("step", step, x.shape);
      x.shape.forEach((d, i) => {
        demand(
          start[i] <= stop[i] && stop[i] <= d && step[i] >= 1,
          `${start[i]} to ${stop[i]} by ${step[i]} is not within axis ${i} of ${showShape(x.shape)}`,
        );
      });
    },
  },
  pad: {
    operands: 1,
    check: ([x], { low, high }) => {
      checkPerAxis("low", low, x.shape);
      checkPerAxis("high", high, x.shape);
    },
  },
  flip: { operands: 1, check: ([x], { axes }) => checkAxes(axes, x.shape) },
  concat: {
    operands: null,
    check: (inputs, { axis }) => {
      demand(inputs.length >= 1, "nothing is concatenated");
      const [first, ...rest] = inputs;
      checkAxis(axis, first.shape);
      for (const x of rest) {
        checkSameDType(first, x);
        const fits =
          x.shape.length === first.shape.length && x.shape.every((d, i) => i === axis || d === first.shape[i]);
        demand(fits, `${showShape(first.shape)} and ${showShape(x.shape)} do not fit along axis ${axis}`);
      }
    },
  },
  reduce: {
    operands: 1,
    check: ([x], { fn, axes }) => {
      checkAxes(axes, x.shape);
      demand(
        axes.every((axis, i) => i === 0 || axes[i - 1] < axis),
        `the axes [${axes}] do not ascend`,
      );
      if (fn === "max" || fn === "min") checkOperandDType(fn, isReal, x.dtype);
    },
  },
  argreduce: {
    operands: 1,
    check: ([x], { fn, axis }) => {
      checkAxis(axis, x.shape);
      demand(x.shape[axis] > 0, `axis ${axis} of ${showShape(x.shape)} is empty`);
      checkOperandDType(fn, isReal, x.dtype);
    },
  },
  cumsum: { operands: 1, check: ([x], { axis }) => checkAxis(axis, x.shape) },
  matmul: {
    operands: 2,
    check: ([a, b], { precision }) => {
      demand(precision === undefined || precisions.includes(precision), `there is no precision ${precision}`);
      checkMatrix(a);
      checkMatrix(b);
      checkSameDType(a, b);
      demand(
        sameShape(leading(a.shape), leading(b.shape)) && a.shape[a.shape.length - 1] === b.shape[b.shape.length - 2],
        `${showShape(a.shape)} and ${showShape(b.shape)} cannot be multiplied`,
      );
    },
  },
  conv: { operands: 2, check: checkConv },
  gather: { operands: 2, check: checkGather },
  updateSlice: {
    operands: 3,
    check: ([base, start, update], { axis, batch }) => {
      checkAxis(axis, base.shape);
      checkSameDType(base, update);
      demand(start.dtype === "int32", `the start is ${start.dtype} and should be int32`);
      demand(isCount(batch) && batch <= axis, `${batch} batch dimensions reach beyond axis ${axis}`);
      demand(sameShape(start.shape, base.shape.slice(0, batch)), `the start is ${showShape(start.shape)}`);
      demand(
        update.shape.length === base.shape.length &&
          update.shape.every((d, i) => (i === axis ? d <= base.shape[i] : d === base.shape[i])),
        `an update ${showShape(update.shape)} does not fit ${showShape(base.shape)} along axis ${axis}`,
      );
    },
  },
  scatterAdd: { operands: 3, check: checkScatter },
  scatterReduce: {
    operands: 3,
    check: (inputs, attrs) => {
      checkScatter(inputs, attrs);
      checkOperandDType("scatterReduce", isWideReal, inputs[0].dtype);
    },
  },
  fft: {
    operands: 1,
    check: ([x], { kind, inverse, axes, size }) => {
      demand(
        isCount(axes) && axes >= 1 && axes <= 3 && axes <= x.shape.length,
        `${axes} axes of ${showShape(x.shape)}`,
      );
      checkOperandDType(kind, kind === "r2c" ? (dtype) => isLinalg(dtype) && isReal(dtype) : isComplex, x.dtype);
      demand(kind === "c2c" || inverse === (kind === "c2r"), `${kind} has one direction`);
      const last = x.shape[x.shape.length - 1];
      demand(!x.shape.slice(-axes).includes(0) && isCount(size) && size >= 1, `an empty axis of ${showShape(x.shape)}`);
      demand(
        last === (kind === "c2r" ? Math.floor(size / 2) + 1 : size),
        `${showShape(x.shape)} is no operand of a transform of ${size}`,
      );
    },
  },
  argsort: {
    operands: 1,
    check: ([x], { first = 0, count = 0 }) => {
      demand(x.shape.length >= 1, "a scalar has no order");
      const n = x.shape[x.shape.length - 1];
      demand(isCount(first) && isCount(count) && first + count <= n, `${count} of ${n} elements from ${first} on`);
      checkOperandDType("argsort", isReal, x.dtype);
    },
  },
  cholesky: { operands: 1, check: ([a]) => checkSquare(a) },
  triangularSolve: { operands: 2, check: checkSystem },
  solve: { operands: 2, check: checkSystem },
  det: { operands: 1, check: ([a]) => checkSquare(a) },
  eigh: { operands: 1, check: ([a]) => checkSquare(a) },
  qr: { operands: 1, check: ([a]) => checkLinalg(a) },
  lu: { operands: 1, check: ([a]) => checkLinalg(a) },
  eig: { operands: 1, check: ([a]) => checkSquare(a) },
  svd: { operands: 1, check: ([a]) => checkLinalg(a) },
  scan: { operands: null, check: checkScan },
  custom: {
    operands: null,
    check: (inputs, { body, kernel }) => {
      checkBody(body, inputs);
      const problem = kernel === undefined ? null : attentionProblem(kernel, inputs, body.outputs);
      demand(problem === null, problem ?? "");
    },
  },
  collective: { operands: 1, check: checkCollective },
  pick: {
    operands: 1,
    check: ([tuple], { index }) => {
      demand(tuple.outputs !== null, `${tuple.op} has one result; there is nothing to pick`);
      const count = outputAvals(tuple).length;
      demand(isCount(index) && index < count, `result ${index} of ${count} is picked`);
    },
  },
};

/** Throws a Violation if operands or attributes of a node violate the contract of its op. */
export function checkContract(node: Pick<Node, "op" | "inputs" | "attrs">): void {
  const row = contracts[node.op] as Row<OpName>;
  demand(
    row.operands === null || node.inputs.length === row.operands,
    `it has ${node.inputs.length} operands and takes ${row.operands}`,
  );
  for (const input of node.inputs) {
    demand(
      node.op === "pick" || input.outputs === null,
      `operand %${input.id} (${input.op}) has several results, of which one must be picked`,
    );
  }
  row.check?.(node.inputs, node.attrs);
}
