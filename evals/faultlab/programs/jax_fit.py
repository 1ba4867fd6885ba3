"""A training loop in JAX on one GPU."""
# mypy: ignore-errors

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser(prog="jax_fit.py")
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--rate", type=float, default=0.01)
options = parser.parse_args()


def loss_of(weights, inputs):
    """Return the mean of a log that wants positive numbers."""
    hidden = jax.nn.relu(inputs @ weights)
    return jnp.mean(jnp.log(1.0 + hidden.sum(1) - jnp.sum(weights**2) * 1e-3))


@jax.jit
def update(weights, inputs):
    """Return the loss and the next weights."""
    loss, gradient = jax.value_and_grad(loss_of)(weights, inputs)
    return loss, weights + options.rate * gradient


print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}", flush=True)
key = jax.random.PRNGKey(1)
weights = jax.random.normal(key, (512, 512)) * 0.05
for step in range(1, 201):
    key, one = jax.random.split(key)
    inputs = jax.random.normal(one, (options.batch, 512))
    loss, weights = update(weights, inputs)
    if step % 10 == 0 or step == 1:
        print(f"step {step} loss {float(loss):.4f}", flush=True)
print("training complete")
