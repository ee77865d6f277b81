// Attention that users write by hand: every form is found and planned without its scores in memory, forward and backward,
// with the values and gradients of the ops; and what only looks like it is left alone.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { type Schedule, scheduleFunction } from "../../compile/index.js";
import type { GraphFn } from "../../graph/index.js";
import * as weft from "../../index.js";
import { data } from "./emulated/testkit.js";
import {
  type Attend,
  assertClose,
  batch,
  byHand,
  causal,
  differentiated,
  four,
  heads,
  keys,
  leftAlone,
  length,
  type RecognitionCase,
  recognitionCases,
  scored,
  size,
  square,
} from "./recognize.testkit.js";
import { assertSmallerThan, fusedOf, Recorder } from "./schedule.testkit.js";

type Tensor = weft.Tensor;

interface Outcome {
  results: number[][];
  plan: Schedule | null;
}

/** Result and gradients of a form, on the recorder or (as it is) on the reference device. */
function outcome(form: RecognitionCase, recorder: Recorder | null): Outcome {
  const { results } = differentiated(form, recorder ?? new weft.ReferenceDevice());
  return { results, plan: recorder?.plan() ?? null };
}

afterEach(() => {
  delete process.env.WEFT_ATTENTION;
});

for (const [name, form] of Object.entries(recognitionCases)) {
  test(`found: ${name}`, () => {
    const { results, plan } = outcome(form, new Recorder());
    assertClose(results, outcome(form, null).results, form.tolerance ?? 2e-5);
    const forward = name === "checkpoint" ? ["attention", "attention"] : ["attention"];
    assert.deepEqual(fusedOf(plan!), [...forward, "attentionGradient"]);
    assertSmallerThan(plan!, form.scores ?? batch * heads * length * keys);
    process.env.WEFT_ATTENTION = "0";
    const off = outcome(form, new Recorder());
    assert.deepEqual(fusedOf(off.plan!), [], "turned off, nothing is found");
    assertClose(off.results, results, form.tolerance ?? 2e-5);
  });
}

/** What a program (not a gradient) becomes, and its results there and on the reference device. */
function compare(make: () => Tensor | Tensor[], tolerance = 2e-5): string[][] {
  const values = (device: weft.ReferenceDevice): number[][] => {
    weft.setDevice(device as never);
    const made = make();
    return (Array.isArray(made) ? made : [made]).map((t) => Array.from(t.dataSync() as ArrayLike<number>, Number));
  };
  const recorder = new Recorder();
  assertClose(values(recorder), values(new weft.ReferenceDevice()), tolerance);
  return recorder.graphs.map((_, i) => fusedOf(recorder.planOf(i)));
}
const inputs = (shapes = four): [Tensor, Tensor, Tensor] =>
  shapes.map((shape, i) => data(shape, i + 1, 2)) as [Tensor, Tensor, Tensor];
const none = (found: string[][]): void => assert.deepEqual(found.flat(), []);

for (const [name, { run, shapes }] of Object.entries(leftAlone)) {
  test(`left alone: ${name}`, () => {
    none(compare(() => weft.jit(run)(...inputs(shapes)), 1e-4));
    const total = (q: Tensor, k: Tensor, v: Tensor): Tensor => {
      const made = run(q, k, v);
      return (
        Array.isArray(made) ? made.map((t) => t.square().sum()).reduce((a, b) => a.add(b)) : made.square().sum()
      ).cast("float32");
    };
    none(
      compare(
        () => weft.jit(weft.grad(total, { argument: [0, 1, 2] }))(...inputs(shapes)) as unknown as Tensor[],
        1e-3,
      ),
    );
  });
}

test("a gradient of what is added to the scores, or of the scores, is not lost", () => {
  const bias = (): Tensor => data([heads, keys, keys], 7);
  const biased = (b: Tensor, ...x: Tensor[]): Tensor =>
    weft.softmax(scored(x[0], x[1]).add(b)).matmul(x[2]).mul(data(square[0], 9)).sum();
  const fused = compare(
    () => weft.jit(weft.grad(biased, { argument: [0, 1] }))(bias(), ...inputs(square)) as unknown as Tensor[],
  );
  assert.deepEqual(fused.flat(), ["attention", "attentionGradient"], "with the gradient of what is added");
  none(
    compare(() => {
      const [a, b, c] = inputs(square);
      return weft.grad((s: Tensor) => weft.softmax(s).matmul(c).mul(data(square[0], 9)).sum())(scored(a, b));
    }),
  );
  const found = compare(() => weft.jit(weft.grad(biased, { argument: 1 }))(bias(), ...inputs(square)));
  assert.deepEqual(
    found.flat(),
    ["attention", "attentionGradient"],
    "what is added and has no gradient is no hindrance",
  );
});

test("without a gradient: jitted and eager programs, one kernel", () => {
  const attend = (q: Tensor, k: Tensor, v: Tensor): Tensor => weft.softmax(scored(q, k)).matmul(v);
  assert.deepEqual(compare(() => weft.jit(attend)(...inputs())).flat(), ["attention"]);
  assert.deepEqual(compare(() => attend(...inputs())).flat(), ["attention"]);
  const eager = compare(() =>
    weft.grad((q: Tensor) => attend(q, ...(inputs().slice(1) as [Tensor, Tensor])).sum())(inputs()[0]),
  );
  assert.deepEqual(eager.flat(), ["attention", "attentionGradient"]);
});

test("layer after layer, and the plan is that of the function", () => {
  const block =
    (attend: Attend) =>
    (x: Tensor, w: Tensor): Tensor => {
      let y = x;
      for (let layer = 0; layer < 3; layer++) {
        const part = (i: number): Tensor => y.matmul(w.index(i)).reshape([batch, keys, heads, size]).transpose(1, 2);
        const mixed = attend(part(0), part(1), part(2))
          .transpose(1, 2)
          .reshape([batch, keys, heads * size]);
        y = y.add(mixed);
      }
      return y.square().sum();
    };
  const plans = [
    (q: Tensor, k: Tensor, v: Tensor) => weft.softmax(q.matmul(k.transpose()).mul(0.5)).matmul(v),
    (q: Tensor, k: Tensor, v: Tensor) => weft.scaledDotProductAttention(q, k, v, { scale: 0.5 }),
  ].map((attend) => {
    const recorder = new Recorder();
    weft.setDevice(recorder as never);
    const program = weft.jit(weft.valueAndGrad(block(attend), { argument: [0, 1] }));
    const [value] = program(data([batch, keys, heads * size], 1), data([3, heads * size, heads * size], 2));
    return { value: value.itemSync(), plan: recorder.plan() };
  });
  assertClose([[plans[0].value]], [[plans[1].value]], 1e-6);
  assert.equal(fusedOf(plans[0].plan).length, 6);
  assert.deepEqual(fusedOf(plans[0].plan), fusedOf(plans[1].plan));
  assert.equal(plans[0].plan.steps.length, plans[1].plan.steps.length, "as many launches");
});

test("vjp, gradients of gradients, jvp and gradients under vmap", () => {
  const attend = (q: Tensor, k: Tensor, v: Tensor): Tensor => weft.softmax(scored(q, k)).matmul(v);
  const small: [number[], number[], number[]] = [
    [3, 5, 4],
    [3, 6, 4],
    [3, 6, 4],
  ];
  const w = (): Tensor => data([3, 5, 4], 9);
  const pulled = compare(() => {
    const [value, pull] = weft.vjp(attend, ...inputs(small));
    return [value, ...pull(w())];
  });
  assert.ok(pulled.flat().includes("attentionGradient"));
  compare(() => {
    const [q, k, v] = inputs(small);
    const inner = (x: Tensor): Tensor =>
      weft
        .grad((y: Tensor) => attend(y, k, v).mul(w()).sum())(x)
        .square()
        .sum();
    return weft.grad(inner)(q);
  }, 1e-4);
  compare(() => {
    const [q, k, v] = inputs(small);
    return weft.jvp((x: Tensor) => attend(x, k, v), [q], [w()]);
  }, 1e-4);
  const mapped = compare(() => {
    const each = (q: Tensor, k: Tensor, v: Tensor, u: Tensor): Tensor[] =>
      weft.grad((...x: Tensor[]) => attend(x[0], x[1], x[2]).mul(u).sum(), { argument: [0, 1, 2] })(
        q,
        k,
        v,
        u,
      ) as unknown as Tensor[];
    return weft.jit(weft.vmap(each, { inAxes: [0, 0, null, 0] }))(...inputs([small[0], small[1], [6, 4]]), w());
  });
  assert.deepEqual(mapped.flat(), ["attention", "attentionGradient"]);
});

test("rows that may look at nothing: as the ops have them", () => {
  const closed = (fill: number) => (): Tensor => {
    const [q, k, v] = inputs(square);
    const mask = causal().logicalAnd(weft.tensor(Array.from({ length: keys }, (_, i) => Number(i > 2))).cast("bool"));
    return weft.jit((...x: Tensor[]) => weft.softmax(scored(x[0], x[1]).where(mask, fill)).matmul(x[2]))(q, k, v);
  };
  for (const fill of [Number.NEGATIVE_INFINITY, -1e9, -1e5])
    assert.deepEqual(compare(closed(fill)).flat(), ["attention"]);
  weft.setDevice(new Recorder() as never);
  assert.ok(Number.isNaN((closed(Number.NEGATIVE_INFINITY)().dataSync() as Float32Array)[0]));
});

test("random shapes, masks and spellings", () => {
  let state = 12345;
  const random = (n: number): number => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 16) % n;
  };
  for (let round = 0; round < 40; round++) {
    const lead = Array.from({ length: random(4) }, () => 1 + random(3));
    const [n, m, d] = [2 + random(6), 2 + random(6), 1 + random(5)];
    const shapes: [number[], number[], number[]] = [
      [...lead, n, d],
      [...lead, m, d],
      [...lead, m, d],
    ];
    // Some axes of the mask are repeated, and some leading ones left out.
    const whole = [...lead, n, m].map((size) => (random(2) === 0 ? size : 1));
    const maskShape = whole.slice(random(lead.length + 1));
    const [spelling, masking, order, seed] = [random(3), random(6), random(2), round + 10];
    const scale = [1, 0.5, 1 / Math.sqrt(d)][random(3)];
    const soft = [weft.softmax, byHand, (s: Tensor) => byHand(s.sub(1))][spelling];
    const attend = (q: Tensor, k: Tensor, v: Tensor): Tensor => {
      let s = order === 0 ? q.matmul(k.transpose()).mul(scale) : q.mul(scale).matmul(k.transpose(-1, -2));
      const numbers = data(maskShape, seed);
      if (masking === 1) s = s.add(numbers);
      if (masking === 2) s = s.where(numbers.greater(-0.3), -1e9);
      // The first key is open to all, so that no row is NaN.
      const first = weft.arange(0, m, 1, { dtype: "int32" }).equal(0);
      if (masking === 3) s = s.where(numbers.greater(0).logicalOr(first), Number.NEGATIVE_INFINITY);
      if (masking === 4) s = s.sub(numbers).where(numbers.greater(-0.2), -1e9);
      if (masking === 5) s = s.add(weft.where(numbers.greater(0).logicalOr(first), numbers, Number.NEGATIVE_INFINITY));
      return soft(s).matmul(v);
    };
    const form = { attend, shapes };
    const { results, plan } = outcome(form, new Recorder());
    const what = `round ${round}: ${JSON.stringify({ lead, n, m, d, maskShape, spelling, masking, order, scale })}`;
    assert.deepEqual(fusedOf(plan!), ["attention", "attentionGradient"], what);
    try {
      assertClose(results, outcome(form, null).results, 2e-5);
    } catch (error) {
      throw new Error(`${what}: ${(error as Error).message}`);
    }
  }
});

test("devices without such kernels compute what they computed: on the CPU, the kernels of the function", () => {
  class Plain extends weft.ReferenceDevice {
    kernels: string[] = [];
    override compile(fn: GraphFn) {
      const { steps } = scheduleFunction(fn, { parallelRows: 64, longReduction: 4096 });
      this.kernels = steps.map((s) =>
        s.kind === "kernel" ? s.kernel.name : s.kind === "library" ? s.node.op : s.kind,
      );
      return super.compile(fn);
    }
  }
  const kernelsOf = (attend: Attend): string[] => {
    const device = new Plain();
    weft.setDevice(device as never);
    const loss = (...x: Tensor[]): Tensor => attend(x[0], x[1], x[2]).square().sum();
    weft.jit(weft.grad(loss, { argument: [0, 1, 2] }))(...inputs());
    return device.kernels;
  };
  const mine = kernelsOf((q, k, v) => weft.softmax(q.matmul(k.transpose()).mul(1 / Math.sqrt(size))).matmul(v));
  assert.deepEqual(
    mine,
    kernelsOf((q, k, v) => weft.scaledDotProductAttention(q, k, v)),
  );
  assert.equal(mine.filter((name) => name === "matmul").length, 6, mine.join());
});
