"""A small training loop in JAX, sharded over the host devices that XLA_FLAGS asks for, with one injected fault. Part of
ScaleFault."""
import argparse
import gc
import os

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=1)
parser.add_argument("--fault", default="none")
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--width", type=int, default=384)
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
fault = "none" if args.fixed else args.fault
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={args.devices} --xla_cpu_multi_thread_eigen=false"

import jax  # noqa: E402 - the flags must be set before
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import weft_probe  # noqa: E402 - available whenever weft scale runs a job
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

mesh = Mesh(np.array(jax.devices()), ("d",))
rows, whole = NamedSharding(mesh, PartitionSpec("d")), NamedSharding(mesh, PartitionSpec())
weights = jax.device_put(jnp.eye(args.width) * 0.5, whole)


@jax.jit
def update(w, x):
    loss = lambda w: (jnp.tanh(jnp.tanh(x @ w) @ w) ** 2).mean()
    return w - 0.1 * jax.grad(loss)(w)


ballast = [[i] for i in range(100000)] if fault == "gc-pauses" else []
data = np.random.default_rng(0).normal(size=(512, args.width)).astype(np.float32)
for step in range(args.steps):
    count = 512 - 8 * (step // 3) if fault == "recompilation" else 512
    with weft_probe.step(samples=count, epoch=1 + step // 20):
        weights = update(weights, jax.device_put(data[:count], rows))
        jax.block_until_ready(weights)
        if fault == "gc-pauses" and step % 3 == 0:
            gc.collect()
        if fault == "logging":
            for value in np.asarray(weights)[:8].flatten().tolist():
                print(step, value)
