"""What looks like the name of a host, among all the words that carry a number."""

from __future__ import annotations

from rerail.lazy_patterns import lazy
from rerail.log_parsers.labels import is_no_host

NO_NODE = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104 - names, not a bind
_IPV4 = lazy(r"\d{1,3}(?:\.\d{1,3}){3}")
# A host of a cluster carries a number; `v1.2`, `2026-03-01`, `train.py` and `0x7f` do as well.
_WITH_NUMBER = lazy(r"(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])[A-Za-z0-9][\w.-]{1,80}")
_NO_HOST = lazy(
    r"(?i)^(?:v?\d+(?:\.\d+)+\w*|\d{4}-\d\d-\d\d.*|0x[0-9a-f]+|[\d.]+(?:[a-z]{1,3}|e[-+]?\d+)|"
    r".*\.(?:py|pyc|cc|cpp|cu|c|h|so|go|rs|java|json|ya?ml|log|out|err|txt|pt|ckpt|sh|safetensors|bin)(?:\.\d+)?|"
    # Stores, models and devices carry numbers as hosts do.
    r"(?:s3|gs|gcs|nfs|nas|lustre|mdt|mds|ost|oss|ceph|minio|db|redis|etcd|mysql|postgres|shard|block|stage|layer|"
    r"checkpoint|ckpt|bucket|pcie|llama|qwen|gpt|mistral|gemma|bert|vit|resnet|model|expert|epoch|step|job|slurm|attempt|try|restart|round|phase|part)[-_.]?\d.*|"
    r"(?:s3|nfs|nas|lustre|model|checkpoint|shard|c4)-.*|[ahbv]\d{2,3}-(?:\d{1,3}g\w{0,2}|sxm\d?|pcie|nvl)|[\w-]*_\d+|"
    r"(?:sm|cu|cuda|torch|python|py|nccl|h|a|v|b|l|t|gb|rtx|fp|bf|int|float|uint|tf|sha|md|utf|mlx|eth|ib|bond|"
    r"nvme|sd|cpu|numa|p2p|i|n|k|e|s|stdin|stdout|llama|gpt|bert|t5|resnet|iter|step|epoch|layer)[-_]?\d{1,4}[a-z]{0,2})$"
)


def is_address(name: str) -> bool:
    """Tell whether a name is an IPv4 address."""
    return _IPV4.fullmatch(name) is not None


def looks_like_host(word: str) -> bool:
    """Tell whether a word that a sentence puts where a host stands is one: a counted name or an address."""
    if _IPV4.fullmatch(word):
        return word not in NO_NODE
    if word in NO_NODE or _NO_HOST.match(word) or not _WITH_NUMBER.fullmatch(word):
        return False
    return not is_no_host(word) or "-" in word
