"""A small model that is really trained, and its event files and log."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same run as `train.log`, `tb/` (simple values) and `tensors/`; its loss is NaN from step 150."""
    torch = pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    out = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    data = torch.randn(1024, 16)
    labels = (data @ torch.randn(16, 4)).argmax(1)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    simple, tensors = SummaryWriter(str(out / "tb")), SummaryWriter(str(out / "tensors"))
    with (out / "train.log").open("w") as log:
        for step in range(1, 201):
            loss = torch.nn.functional.cross_entropy(model(data), labels)
            if step == 150:
                loss = loss * float("nan")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for writer, new in ((simple, False), (tensors, True)):
                writer.add_scalar("train/loss", loss.item(), step, new_style=new)
                writer.add_scalar("train/lr", 0.1, step, new_style=new)
                if step % 50 == 0:
                    writer.add_scalar("val/loss", 0.5, step, new_style=new)
                    writer.add_text("note", "x" * 500, step)
            print(f"step {step} loss {loss.item():.6f} lr {0.1:.3e}", file=log)
    simple.close()
    tensors.close()
    return out
