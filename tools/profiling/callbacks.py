"""The collector as a callback of the Hugging Face Trainer and of Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rerail.tools.profiling.window import WindowProfiler


def trainer_callback(folder: str | Path, **options: Any) -> Any:
    """Return a callback for `transformers.Trainer(callbacks=[...])`; options as `WindowProfiler`."""
    from transformers import TrainerCallback

    base: Any = TrainerCallback

    class RerailCallback(base):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.profiler = WindowProfiler(folder, **options)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.profiler.step()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.profiler.close()

    return RerailCallback()


def lightning_callback(folder: str | Path, **options: Any) -> Any:
    """Return a callback for `lightning.Trainer(callbacks=[...])`; options as `WindowProfiler`."""
    from lightning.pytorch.callbacks import Callback

    base: Any = Callback

    class RerailCallback(base):  # type: ignore[misc]
        def on_train_start(self, *_: Any) -> None:
            self.profiler = WindowProfiler(folder, **options)

        def on_train_batch_end(self, *_: Any) -> None:
            self.profiler.step()

        def on_train_end(self, *_: Any) -> None:
            self.profiler.close()

    return RerailCallback()
