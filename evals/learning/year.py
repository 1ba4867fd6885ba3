"""A synthetic year of one site: failures that the shipped rules know, and some that only this site has.

Site causes recur by a power law. Jobs print harmless lines in nearly the same words, some causes
share half their wording with another cause, and people mislabel a share of the incidents.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache

from rerail.domain.evidence import Role, Tier
from rerail.knowledge_base.rules import load_rules
from rerail.knowledge_base.taxonomy import leaves

# (true leaf, the line that shows it, a harmless line in nearly the same words)
SITE_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        "shared_fs_error",
        "RuntimeError: vastfs: lease on shard {n} was lost to node {h} (epoch {n})",
        "vastfs: lease on shard {n} was renewed by node {h} (epoch {n})",
    ),
    (
        "data_corrupt_sample",
        "RuntimeError: tokenstore block {x} failed its seal, wanted {x}",
        "tokenstore block {x} passed its seal in {n} ms",
    ),
    (
        "nic_hardware_failure",
        "ValueError: quartz adapter {n} parked itself at {h}, lane {n} dark",
        "quartz adapter {n} at {h} woke up, lane {n} lit",
    ),
    (
        "config_error",
        "ValueError: plan {p} wants {n} stages, mesh {h} offers {n}",
        "plan {p} placed {n} stages on mesh {h}",
    ),
    (
        "checkpoint_corrupt",
        "RuntimeError: vault object {p} ended after {n} of {n} slabs",
        "vault object {p} holds {n} of {n} slabs",
    ),
    (
        "object_store_error",
        "RuntimeError: harbour gave no berth for {p} within {n} tries",
        "harbour gave berth {n} for {p}",
    ),
    (
        "slow_host_cpu",
        "RuntimeError: conductor starved on {h}: {n} ticks behind its beat",
        "conductor on {h}: {n} ticks ahead of its beat",
    ),
    (
        "gpu_pcie_error",
        "RuntimeError: sled {n} of {h} answers at half width, wanted {n}",
        "sled {n} of {h} answers at full width {n}",
    ),
    (
        "experiment_tracker_error",
        "RuntimeError: ledger refused run {x}: page {n} is sealed",
        "ledger took run {x}: page {n}",
    ),
    (
        "image_pull_or_start_failure",
        "RuntimeError: capsule {x} lacks layer {n} on {h}",
        "capsule {x} has layer {n} on {h}",
    ),
    (
        "dataloader_hang",
        "RuntimeError: weir {n} has passed no batch for {n} s",
        "weir {n} has passed batch {n} after {n} s",
    ),
    (
        "permission_denied",
        "RuntimeError: warden keeps {p} shut for uid {n}",
        "warden opens {p} for uid {n}",
    ),
    (
        "tcp_network_failure",
        "RuntimeError: causeway from {h} to {h} broke at hop {n}",
        "causeway from {h} to {h} stands at hop {n}",
    ),
    (
        "dist_env_misconfig",
        "RuntimeError: roll call of {n} seats found {n} twins at {h}",
        "roll call of {n} seats found {n} at {h}",
    ),
    (
        "extension_build_failure",
        "RuntimeError: forge spoilt kernel {x} on anvil {n}",
        "forge cast kernel {x} on anvil {n}",
    ),
    (
        "checkpoint_save_failure",
        "RuntimeError: vault object {p} was refused after {n} of {n} slabs",
        "vault object {p} was stored after {n} slabs",
    ),
)
_GENERIC = (Tier.GENERIC, Tier.EXIT)


@dataclass(frozen=True, slots=True)
class YearCase:
    """One incident of the year: its day, its log, the truth, and what the person says."""

    day: int
    log: str
    truth: str
    said: str
    line: int
    site: bool


def year(*, seed: int = 1, incidents: int = 300, mislabelled: float = 0.04) -> list[YearCase]:
    """Return a year of incidents in the order of time; `line` is 1-based."""
    rng = random.Random(seed)
    weights = [1.0 / (k + 1) for k in range(len(SITE_CAUSES))]
    order = list(SITE_CAUSES)
    rng.shuffle(order)
    known = _known_examples()
    cases = []
    for number in range(incidents):
        site = rng.random() < 0.5
        if site:
            truth, line, _ = rng.choices(order, weights)[0]
            line = _filled(line, rng)
        else:
            truth, line = rng.choice(known)
        said = rng.choice(sorted(leaves())) if rng.random() < mislabelled else truth
        log, at = _log(line, rng)
        cases.append(YearCase(number * 365 // incidents, log, truth, said, at, site))
    return cases


@lru_cache(maxsize=1)
def _known_examples() -> list[tuple[str, str]]:
    """Return single example lines of shipped initiating rules, with their leaf."""
    found = []
    for rule in load_rules():
        plain = not (rule.stream or rule.nearby or rule.in_log or rule.frames or rule.min_count > 1)
        if rule.role is Role.INITIATING and rule.leaf and rule.tier not in _GENERIC and plain:
            found += [(rule.leaf, e) for e in rule.matches[:1] if "\n" not in e.strip()]
    return found


def _log(line: str, rng: random.Random) -> tuple[str, int]:
    rank = rng.randrange(64)
    rows = [f"[rank{rank}]: step {s} loss {9 / s:.3f}" for s in range(1, rng.randrange(5, 25))]
    for _, _, harmless in rng.sample(SITE_CAUSES, 4):
        rows.insert(rng.randrange(len(rows)), f"INFO {_filled(harmless, rng)}")
    rows.append(
        f"[rank{rank}]: {line}" if line.startswith(("RuntimeError", "ValueError")) else line
    )
    return "\n".join(rows) + "\n", len(rows)


def _filled(text: str, rng: random.Random) -> str:
    made = {
        "n": lambda: str(rng.randrange(1, 9000)),
        "h": lambda: f"{rng.choice(['ice', 'elm', 'oak'])}-{rng.randrange(1, 400):03d}",
        "p": lambda: (
            f"/{rng.choice(['vol', 'mnt'])}/{rng.choice(['a', 'b'])}/{rng.randrange(99)}.pt"
        ),
        "x": lambda: f"{rng.getrandbits(40):010x}",
    }
    return re.sub(r"\{([nhpx])\}", lambda m: made[m[1]](), text)
