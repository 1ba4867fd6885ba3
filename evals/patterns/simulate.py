"""The events of every worker of a simulated training job, kernel by kernel.

Each worker has a host that launches and a device that runs. Collectives begin when a member arrives
and end, for all, a transfer after the last one; so the waiting of healthy workers follows from the
faults of others and is not drawn by hand.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray, IntArray
from rerail.evals.patterns.counters import link_samples
from rerail.evals.patterns.shape import Fault, Shape
from rerail.tools.profiles.trace import ANNOTATION, COPY, CPU_OP, KERNEL, Bytes, Group, Trace

FORWARD = (
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_qkv", 900.0),
    ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >(Flash_fwd_params)", 700.0),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize256x128x64_mlp", 1800.0),
    ("void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)", 150.0),
)
BACKWARD = (
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize256x128x64_mlp_wgrad", 2500.0),
    ("void flash_bwd_dq_dk_dv_loop_kernel<Flash_bwd_kernel_traits<128, 64> >(Flash_bwd_params)", 1500.0),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x128x64_qkv_dgrad", 1600.0),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>(int)", 120.0),
)  # fmt: skip
VOCABULARY = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_vocabulary"
LOSS = "void cross_entropy_forward_kernel<c10::BFloat16, float>(float)"
ADAM = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor>(long)"
COPY_IN = "Memcpy HtoD (Pinned -> Device)"
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
COLLECT = "gc.collect generation 2"
LAUNCH = ("DistributedDataParallel.forward", "autograd::engine::evaluate_function")
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_REDUCE = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
_TP_US, _PP_US, _DP_US = 220.0, 180.0, 3800.0
_LAUNCH_US, _NEXT_US, _COPY_US, _GAP_US = 900.0, 60.0, 260.0, 2.0
_STAGE_VOCABULARY_US = 300.0
Mask = NDArray[np.bool_]
Row = tuple[str, int, FloatArray, FloatArray, float, IntArray | None]


class Job:
    """One simulated window; `traces()` yields one worker after the other.

    `touched` holds, for faults that move, the ranks that they reached.
    """

    def __init__(self, shape: Shape, faults: tuple[Fault, ...] = ()) -> None:
        self.shape = shape
        self.faults = faults
        self.random = np.random.default_rng(shape.seed)
        self.touched: dict[str, set[int]] = {}
        size = (shape.dp, shape.tp)
        self.ranks = [
            np.array([[shape.rank(d, s, t) for t in range(shape.tp)] for d in range(shape.dp)])
            for s in range(shape.pp)
        ]
        self.speed = [
            np.exp(shape.spread * self.random.standard_normal(size)) for _ in range(shape.pp)
        ]
        for stage in range(shape.pp):
            if shape.mixed:
                self.speed[stage][shape.dp // 2 :] *= 1.3
            for fault in self._of("clock"):
                self.speed[stage][np.isin(self.ranks[stage], fault.workers)] *= fault.ratio
        self.rows: list[list[Row]] = [[] for _ in range(shape.pp)]
        self.device = [np.zeros(size) for _ in range(shape.pp)]
        self.host = [np.zeros(size) for _ in range(shape.pp)]
        for step in range(shape.steps):
            self._step(step)

    def _of(self, kind: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.kind == kind]

    def _noise(self, stage: int) -> FloatArray:
        drawn: FloatArray = np.exp(
            self.shape.jitter * self.random.standard_normal(self.device[stage].shape)
        )
        return drawn

    def _struck(self, stage: int, fault: Fault) -> Mask:
        """Return which workers of a stage a fault hits now, as a mask."""
        ranks = self.ranks[stage]
        if not fault.random:
            return (
                np.isin(ranks, fault.workers) if fault.workers else np.ones(ranks.shape, dtype=bool)
            )
        hit: Mask = np.isin(ranks, fault.workers) & (self.random.random(ranks.shape) < 0.3)
        self.touched.setdefault(fault.kind, set()).update(ranks[hit].tolist())
        return hit

    def _step(self, number: int) -> None:
        shape = self.shape
        begin = [np.maximum(self.host[s], self.device[s]) for s in range(shape.pp)]
        for s in range(shape.pp):
            self.host[s] = begin[s].copy()
            self._before(s)
        self.lengths = np.ones((shape.dp, 1))
        for fault in self._of("lengths"):
            drawn = self.random.lognormal(0, fault.ratio, (shape.dp, 1))
            self.lengths = np.clip(drawn / drawn.mean(), 0.3, 4.0)
        for _ in range(shape.micro_batches):
            for s in range(shape.pp):
                self._pass(s, FORWARD, 0)
        for _ in range(shape.micro_batches):
            for s in reversed(range(shape.pp)):
                self._pass(s, BACKWARD, 1)
        for s in range(shape.pp):
            self._reduce(s)
            end = np.maximum(self.host[s], self.device[s])
            self._add(s, f"ProfilerStep#{100 + number}", ANNOTATION, begin[s], end - begin[s])
            self.host[s] = end

    def _before(self, s: int) -> None:
        """Fetch data, perhaps collect garbage, and copy the batch to the device."""
        took = _NEXT_US * self._noise(s)
        for fault in self._of("loader"):
            took = took + self._struck(s, fault) * fault.ratio * 20_000 * self._noise(s)
        self._add(s, NEXT, ANNOTATION, self.host[s], took)
        self.host[s] = self.host[s] + took
        for fault in self._of("gc"):
            pause = self._struck(s, fault) * fault.ratio * 20_000 * self._noise(s)
            self._add(s, COLLECT, ANNOTATION, self.host[s], np.where(pause > 0, pause, -1))
            self.host[s] = self.host[s] + pause
        took = _COPY_US * self._noise(s)
        for fault in self._of("pcie"):
            took = took * np.where(np.isin(self.ranks[s], fault.workers), fault.ratio, 1.0)
        self.device[s] = np.maximum(self.device[s], self.host[s])
        self._add(s, COPY_IN, COPY, self.device[s], took, 6.5e6)
        self.device[s] = self.device[s] + took

    def _pass(self, s: int, kernels: tuple[tuple[str, float], ...], backward: int) -> None:
        shape = self.shape
        launch = _LAUNCH_US * self._noise(s)
        for fault in self._of("cpu"):
            slow = np.isin(self.ranks[s], fault.workers)
            launch = launch * np.where(
                slow, 1 + (fault.ratio - 1) * 8 * self.random.random(slow.shape), 1
            )
        self._add(s, LAUNCH[backward], CPU_OP, self.host[s], launch)
        self.host[s] = self.host[s] + launch
        self.device[s] = np.maximum(self.device[s], self.host[s])
        source = s - 1 if not backward else s + 1
        if 0 <= source < shape.pp:
            self._receive(s, source)
        for name, usual in kernels:
            self._kernel(s, name, usual)
            if "mlp" in name or "dgrad" in name:
                self._tensor_parallel(s)
        if s == shape.pp - 1 and not backward:
            extra = 1.0
            for fault in self._of("last_stage"):
                extra = 1 + (fault.ratio - 1) * 3550 / _STAGE_VOCABULARY_US * 2.6
            self._kernel(s, VOCABULARY, _STAGE_VOCABULARY_US * extra)
            self._kernel(s, LOSS, 60.0)

    def _kernel(self, s: int, name: str, usual: float) -> None:
        shape = self.shape
        took = usual * self.speed[s] * self._noise(s)
        if s == shape.pp - 1 and shape.pp > 1:
            took = took * shape.last
        if shape.lighter and "xmma_gemm" in name:
            took[3::4] *= 0.3
        if "flash" in name:
            took = took * self.lengths**2
        elif self._of("lengths"):
            took = took * self.lengths
        for fault in (*self._of("code"), *self._of("function")):
            if "layer_norm" in name:
                hit = np.isin(self.ranks[s], fault.workers) if fault.workers else True
                took = took * np.where(hit, fault.ratio, 1.0)
        self._add(s, name, KERNEL, self.device[s], took)
        self.device[s] = self.device[s] + took + _GAP_US

    def _tensor_parallel(self, s: int) -> None:
        if self.shape.tp == 1:
            return
        transfer = np.full((self.shape.dp, 1), _TP_US)
        for fault in self._of("nvlink"):
            hit = np.isin(self.ranks[s], fault.workers).any(axis=1, keepdims=True)
            transfer = transfer * np.where(hit, fault.ratio, 1.0)
        transfer = transfer * np.exp(
            self.shape.jitter * self.random.standard_normal(transfer.shape)
        )
        end = self.device[s].max(axis=1, keepdims=True) + transfer
        group = self.ranks[s][:, :1] + np.zeros_like(self.ranks[s])
        self._add(s, _ALL_REDUCE, KERNEL, self.device[s], end - self.device[s], 1.6e7, group)
        self.device[s] = end + np.zeros_like(self.device[s])

    def _receive(self, s: int, source: int) -> None:
        took = _PP_US * self._noise(s)
        sent = self.device[source]
        end = np.maximum(self.device[s], sent) + took
        pair = np.minimum(self.ranks[s], self.ranks[source])
        self._add(s, _SEND, KERNEL, self.device[s], end - self.device[s], 8.4e6, pair)
        self._add(source, _SEND, KERNEL, end - took, took, 8.4e6, pair)
        self.device[s] = end

    def _reduce(self, s: int) -> None:
        for name in (_REDUCE, _GATHER):
            if name == _GATHER:
                self._kernel(s, ADAM, 500.0)
            if self.shape.dp == 1:
                continue
            transfer = np.full((1, self.shape.tp), _DP_US)
            for kind, share in (("link", 1.0), ("pcie", 0.5)):
                for fault in self._of(kind):
                    hit = np.isin(self.ranks[s], fault.workers).any(axis=0, keepdims=True)
                    transfer = transfer * np.where(hit, 1 + share * (fault.ratio - 1), 1.0)
            transfer = transfer * np.exp(
                self.shape.jitter * self.random.standard_normal(transfer.shape)
            )
            end = self.device[s].max(axis=0, keepdims=True) + transfer
            group = self.ranks[s][:1] + np.zeros_like(self.ranks[s])
            self._add(s, name, KERNEL, self.device[s], end - self.device[s], 1.2e8, group)
            self.device[s] = end + np.zeros_like(self.device[s])

    def _add(
        self, s: int, name: str, kind: int, start: FloatArray, took: FloatArray,
        size: float = float("nan"), group: IntArray | None = None,
    ) -> None:  # fmt: skip
        self.rows[s].append((name, kind, start.copy(), took, size, group))

    def traces(self) -> Iterator[Trace]:
        """Yield the trace of each worker, clocks up to 10 ms apart."""
        shape = self.shape
        for s in range(shape.pp):
            names = list(dict.fromkeys(row[0] for row in self.rows[s]))
            number = np.array([names.index(row[0]) for row in self.rows[s]])
            kind = np.array([row[1] for row in self.rows[s]], dtype=np.uint8)
            start = np.stack([row[2] for row in self.rows[s]])
            took = np.stack([np.broadcast_to(row[3], row[2].shape) for row in self.rows[s]])
            size = np.array([row[4] for row in self.rows[s]])
            of = np.full(start.shape, -1, dtype=np.int64)
            for i, row in enumerate(self.rows[s]):
                if row[5] is not None:
                    of[i] = row[5]
            for d in range(shape.dp):
                for t in range(shape.tp):
                    yield self._trace(
                        s, d, t, names, number, kind, start[:, d, t], took[:, d, t], size, of[:, d, t]
                    )  # fmt: skip

    def _trace(
        self, s: int, d: int, t: int, names: list[str], number: IntArray, kind: Bytes,
        start: FloatArray, took: FloatArray, size: FloatArray, of: IntArray,
    ) -> Trace:  # fmt: skip
        shape = self.shape
        rank = shape.rank(d, s, t)
        keep = took > 0
        group = np.full(len(of), -1, dtype=np.int64)
        groups: dict[Group, int] = {}
        for what, head in {
            (names[n], int(g)) for n, g in zip(number[keep], of[keep], strict=True) if g >= 0
        }:
            group[(of == head) & (number == names.index(what))] = groups.setdefault(
                _group(shape, what, head), len(groups)
            )
        clock = self.random.uniform(-10_000, 10_000) + 1e9
        samples = None
        if shape.counters:
            slow = {w for fault in self._of("link") for w in fault.workers}
            ring_slow = any(rank % shape.tp == w % shape.tp and self._stage(w) == s for w in slow)
            samples = link_samples(
                self.random, start[keep] + clock, took[keep],
                [names[n] for n in number[keep]], culprit=rank in slow, slow_ring=ring_slow,
            )  # fmt: skip
        lane = np.where((kind == ANNOTATION) | (kind == CPU_OP), 0, 1)
        return Trace(
            f"simulated rank {rank}", rank, shape.workers, shape.host(rank), names, number[keep],
            kind[keep], start[keep] + clock, took[keep], lane[keep], size[keep], group[keep],
            list(groups), samples,
        )  # fmt: skip

    def _stage(self, rank: int) -> int:
        return rank // self.shape.tp % self.shape.pp


def _group(shape: Shape, name: str, head: int) -> Group:
    if name == _ALL_REDUCE:
        return Group("tp", "tp", shape.tp, f"tp {head}")
    if name == _SEND:
        return Group("pp", "pp", 2, f"pp {head}")
    return Group("dp", "dp", shape.dp, f"dp {head}")
