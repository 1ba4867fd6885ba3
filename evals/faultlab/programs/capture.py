"""Captures a training step as a CUDA graph, with one operation in it that cannot be captured."""
# mypy: allow-untyped-calls

from __future__ import annotations

import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16)).cuda()
inputs = torch.randn(128, 256, device="cuda")
labels = torch.randint(0, 16, (128,), device="cuda")
warm = torch.cuda.Stream()
with torch.cuda.stream(warm):
    for _ in range(3):
        nn.functional.cross_entropy(model(inputs), labels).backward()
torch.cuda.synchronize()
print("warmed up, capturing", flush=True)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    print(f"loss {loss.item():.4f}")
    loss.backward()
for _ in range(50):
    graph.replay()
print("training complete")
