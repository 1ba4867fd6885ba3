"""What is no text is told by its bytes; a log in any encoding, or a damaged one, is text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rerail.log_parsers.binary_content import looks_binary

DATA = Path(__file__).parent.parent / "data"
LOGS = sorted(
    path
    for path in DATA.rglob("*")
    if path.suffix in (".log", ".out", ".err", ".txt") and path.is_file()
)
SAID = {
    "chinese": "训练第{n}步 损失值 2.{n} 学习率 0.0001 显存不足 错误: 无法分配内存 节点已经断开连接\n",
    "japanese": "学習ステップ{n} 損失 2.{n} エラー: メモリを割り当てることができません\n",
    "korean": "학습 단계 {n} 손실 2.{n} 오류: 메모리를 할당할 수 없습니다\n",
    "russian": "шаг {n} потери 2.{n} ошибка: не удалось выделить память на устройстве\n",
    "french": "étape {n} perte 2.{n} échec : mémoire épuisée à la phase d'entraînement\n",
}
ENCODED = [
    *(("chinese", name) for name in ("gbk", "gb18030", "big5hkscs", "utf-16", "utf-16-le", "utf-16-be")),
    *(("japanese", name) for name in ("shift_jis", "euc_jp", "iso2022_jp", "utf-16-le")),
    *(("korean", name) for name in ("euc_kr", "cp949", "utf-16-be")),
    *(("russian", name) for name in ("cp1251", "koi8_r", "cp866", "utf-16")),
    *(("french", name) for name in ("latin-1", "cp1252", "cp850", "utf-16")),
]  # fmt: skip


@pytest.mark.parametrize("size", [1_000, 4_096, 60_000, 1 << 20])
def test_random_bytes_are_no_text(size: int) -> None:
    for seed in range(50):
        data = random.Random(size + seed).randbytes(size)
        assert looks_binary(data if seed % 2 else data.replace(b"\0", b""))


@pytest.mark.parametrize(("language", "encoding"), ENCODED)
def test_a_log_in_another_encoding_is_text(language: str, encoding: str) -> None:
    text = "".join(SAID[language].format(n=n) for n in range(200))
    assert not looks_binary(text.encode(encoding, "replace"))
    assert not looks_binary(text.replace(" ", "").encode(encoding, "replace"))


def test_any_chinese_sign_in_utf_16_is_text() -> None:
    dice = random.Random(4)
    text = "".join(chr(dice.randrange(0x4E00, 0x9FA6)) for _ in range(5_000))
    assert not looks_binary(text.encode("utf-16-le"))
    assert not looks_binary(text.encode("utf-16-be"))


def test_logs_are_text_also_damaged_ones() -> None:
    assert len(LOGS) > 500
    for path in LOGS:
        dice, data = random.Random(path.name), path.read_bytes()[: 1 << 18]
        assert not looks_binary(data), path
        if len(data) < 400:
            continue
        flipped = bytearray(data)
        for at in dice.sample(range(len(flipped)), len(flipped) // 25):
            flipped[at] ^= 1 << dice.randrange(8)
        assert not looks_binary(bytes(flipped)), path
        at = dice.randrange(len(data))
        hole = bytes(dice.choice((40, 3_000, 9_000)))
        assert not looks_binary(data[:at] + hole + data[at:]), path


def test_a_log_that_begins_with_a_lost_block_is_text() -> None:
    lost = random.Random(7).randbytes(4_096)
    assert not looks_binary(lost + b"\n[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n")


def test_the_mark_of_utf_16_before_random_bytes_is_no_text() -> None:
    assert looks_binary(b"\xff\xfe" + random.Random(3).randbytes(4096))
