"""What a small log is read with: importing numpy takes longer than all of it."""

from __future__ import annotations

import subprocess
import sys


def test_a_small_log_is_cut_into_lines_without_numpy() -> None:
    program = (
        "import sys; from rerail.log_parsers.piece import Piece\n"
        "piece = Piece(b'[rank0]: step 1 loss 0.5\\rstep 2\\n' * 8_000)\n"
        "assert len(piece.ends) == 8_000 and len(piece.frame_ends) == 16_000\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
