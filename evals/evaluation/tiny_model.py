"""A tiny byte-level language model in torch for lm-evaluation-harness, and small tasks for it.

`make_model` writes random weights; the harness loads them with `load`. It answers nothing rightly but
by chance, and computes real log-likelihoods.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import LM
from torch import nn

_WIDTH = 32
_CONTEXT = 64


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, _WIDTH)
        self.rnn = nn.GRU(_WIDTH, _WIDTH, batch_first=True)
        self.out = nn.Linear(_WIDTH, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, length, 256]."""
        found: torch.Tensor = self.out(self.rnn(self.embed(tokens))[0])
        return found


class TinyLM(LM):  # type: ignore[misc]
    """The model behind the harness' interface."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        torch.set_num_threads(1)
        self.net = _Net()
        self.net.load_state_dict(torch.load(Path(folder) / "weights.pt", weights_only=True))
        self.net.eval()

    @torch.no_grad()
    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        """Return log-likelihood and greediness of each continuation."""
        out = []
        for request in requests:
            context, continuation = request.args
            given, wanted = list(context.encode()) or [0], list(continuation.encode())
            tokens = torch.tensor([(given + wanted)[-_CONTEXT - 1 :]])
            logs = torch.log_softmax(self.net(tokens[:, :-1]), dim=-1)[0, -len(wanted) :]
            target = tokens[0, -len(wanted) :]
            chosen = logs[torch.arange(len(target)), target]
            out.append((float(chosen.sum()), bool((logs.argmax(-1) == target).all())))
        return out

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        """Return the log-likelihood of whole texts."""
        whole = [type(one)(**{**vars(one), "arguments": ("", one.args[0])}) for one in requests]
        return [value for value, _ in self.loglikelihood(whole)]

    @torch.no_grad()
    def generate_until(self, requests: list[Any]) -> list[str]:
        """Return the greedy continuation of each context, at most eight bytes."""
        out = []
        for request in requests:
            tokens = list(request.args[0].encode())[-_CONTEXT:]
            made: list[int] = []
            for _ in range(8):
                logits = self.net(torch.tensor([tokens + made]))[0, -1]
                made.append(int(logits[:128].argmax()))
            out.append(bytes(made).decode("ascii", "replace"))
        return out


def load(folder: str) -> TinyLM:
    """Return the model of a folder."""
    return TinyLM(folder)


def make_model(folder: Path, seed: int = 1) -> None:
    """Write random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    torch.save(_Net().state_dict(), folder / "weights.pt")


def make_tasks(folder: Path, sizes: dict[str, int]) -> None:
    """Write tasks for the harness with so many items each: sums with four choices.

    Tasks whose name begins with `gen` are generated and compared exactly.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in sizes.items():
        rows = []
        for i in range(count):
            a, b = (7 * i + 3) % 50, (11 * i + len(name)) % 50
            choices = [str(a + b + shift) for shift in (0, 1, 10, -3)]
            rows.append({"question": f"{a} + {b} =", "choices": choices, "gold": 0})
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        generates = name.startswith("gen")
        kind = "generate_until" if generates else "multiple_choice"
        target = "{{choices[0]}}" if generates else "gold"
        lines = [
            f"task: {name}", "dataset_path: json",
            f"dataset_kwargs: {{data_files: {{test: '{data}'}}}}", "test_split: test",
            f"output_type: {kind}", "doc_to_text: '{{question}}'", f"doc_to_target: '{target}'",
        ]  # fmt: skip
        if generates:
            lines += ["generation_kwargs: {until: ['\\n'], max_gen_toks: 8}",
                      "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]"]  # fmt: skip
        else:
            lines += ["doc_to_choice: '{{choices}}'",
                      "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}, "
                      "{metric: acc_norm, aggregation: mean, higher_is_better: true}]"]  # fmt: skip
        (folder / f"{name}.yaml").write_text("\n".join(lines) + "\n")
