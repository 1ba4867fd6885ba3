"""Faults before the first step."""
# mypy: allow-untyped-calls, no-warn-unused-ignores

from __future__ import annotations

from rerail.evals.faultlab.faults import Hooks, State


class FusedAttention(Hooks):
    """The training script imports a package that is not installed."""

    def on_import(self) -> None:
        """Import the attention kernels."""
        import flash_attn  # type: ignore[import-not-found]  # noqa: F401


class CudaModel(Hooks):
    """The job asks for a GPU of a machine that has none."""

    def before_init(self, state: State) -> None:
        """Select the device of this rank."""
        import torch

        torch.cuda.set_device(state.rank)


HOOKS: dict[str, type[Hooks]] = {
    "fused_attention": FusedAttention,
    "cuda_model": CudaModel,
}
