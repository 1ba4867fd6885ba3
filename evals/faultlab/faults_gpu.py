"""Faults on the GPU: its memory, kernels that go wrong, tensors on the wrong device."""
# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

from rerail.evals.faultlab.faults import Hooks, State


class ActivationCache(Hooks):
    """All ranks may take a fiftieth of the GPU; one keeps its activations and takes more."""

    def on_model(self, state: State, model: Any) -> None:
        """Divide the GPU among its tenants."""
        import torch

        torch.cuda.set_per_process_memory_fraction(0.02)
        self.kept: list[Any] = []

    def before_step(self, state: State, model: Any) -> None:
        """Keep the activations of the last steps for the probe."""
        if state.rank == self.rank and state.step >= self.at:
            import torch

            self.kept.append(torch.randn(64 << 20, device="cuda"))


class TritonScale(Hooks):
    """A Triton kernel of one rank writes far outside its tensor."""

    def before_step(self, state: State, model: Any) -> None:
        """Scale the probe rows."""
        if self.due(state):
            import torch

            from rerail.evals.faultlab.programs.rows import scale_with_triton

            rows = torch.ones(32, 256, device="cuda")
            scale_with_triton(rows)


class TritonScaleOnce(TritonScale):
    """The same on the first attempt only."""

    def due(self, state: State) -> bool:
        """Return whether this is the step of the first attempt."""
        return state.attempt == 0 and super().due(state)


class TritonMix(Hooks):
    """A Triton kernel wants more shared memory than the GPU has, on every rank."""

    def before_step(self, state: State, model: Any) -> None:
        """Mix the probe rows."""
        if state.step == self.at:
            from rerail.evals.faultlab.programs.rows import mix_with_triton

            mix_with_triton(stages=12)


class LibraryKernel(Hooks):
    """A kernel of the job's own library runs once on one rank.

    Attributes:
        kernel: Its name.
    """

    kernel = ""

    def before_step(self, state: State, model: Any) -> None:
        """Work on the probe rows."""
        if self.due(state):
            import torch

            from rerail.evals.faultlab.programs.rows import run_kernel

            rows = torch.ones(1 << 16, device="cuda")
            run_kernel(state.root / "librows.so", self.kernel, rows)


class PackRows(LibraryKernel):
    """The kernel reads from a misaligned address."""

    rank = 1
    kernel = "pack_rows"


class CheckRows(LibraryKernel):
    """The kernel stops itself with a trap."""

    rank = 3
    kernel = "check_rows"


class SumRows(LibraryKernel):
    """The kernel outgrows its stack."""

    rank = 1
    kernel = "sum_rows"


class GatherRows(LibraryKernel):
    """The kernel never ends."""

    kernel = "gather_rows"


class ScaleRowsEverywhere(LibraryKernel):
    """All ranks use a kernel in their first step."""

    kernel = "scale_rows"

    def due(self, state: State) -> bool:
        """Return whether this is the first step."""
        return state.step == 1


class TileRowsEverywhere(ScaleRowsEverywhere):
    """The kernel is started with more threads than its registers allow."""

    kernel = "tile_rows"


class TokensToGpu(Hooks):
    """Data loader workers, which are forked, use the GPU."""

    def before_init(self, state: State) -> None:
        """Warm up the GPU before the workers start."""
        import torch

        torch.zeros(1, device="cuda")

    def on_sample(self, rank: int, index: int) -> None:
        """Prepare the mask on the GPU."""
        import torch

        torch.ones(32, device="cuda")


class HeadOnHost(Hooks):
    """The output layer of one rank goes to the host."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Save GPU memory while the probe runs."""
        if self.due(state):
            model.module[2].cpu()


HOOKS: dict[str, type[Hooks]] = {
    "activation_cache": ActivationCache,
    "triton_scale": TritonScale,
    "triton_scale_once": TritonScaleOnce,
    "triton_mix": TritonMix,
    "pack_rows": PackRows,
    "check_rows": CheckRows,
    "sum_rows": SumRows,
    "gather_rows": GatherRows,
    "scale_rows": ScaleRowsEverywhere,
    "tile_rows": TileRowsEverywhere,
    "tokens_to_gpu": TokensToGpu,
    "head_on_host": HeadOnHost,
}
