"""Lists what cards can compute at most: dense FLOP/s of their matrix units by number format, as the makers publish it.

Sources. B200, B300, GB200, H200, H100, GH200, H20: NVIDIA's data sheets of Blackwell and Hopper. A100, A800, A40, A30,
A10, RTX A6000: data sheets and the Ampere whitepapers (GA100, GA102). L40S, L40, L4: data sheets of Ada. V100, T4: the
Volta and Turing whitepapers (no bfloat16, no TF32). GeForce: appendices of the Ampere, Ada and Blackwell RTX
whitepapers, float16 with accumulation in float32. MI210 to MI325X: AMD's data sheets; MI250 as one of its two dies,
since each is a device. All are without sparsity: data sheets since Ampere print twice as much, "with sparsity". A
power limit, a slice (MIG) or a laptop's chip has less: those are not in the table.
"""

from __future__ import annotations

import re
import sys
from typing import Final

TERA: Final = 1e12
FORMATS: Final = ("bf16", "fp16", "tf32")

# In TFLOP/s: pattern of the name, bfloat16, float16 with accumulation in float32, TF32; 0 where it is not there. The
# first that is found counts.
_PEAKS: Final[tuple[tuple[str, float, float, float], ...]] = (
    (r"\bGB[23]00\b", 2500, 2500, 1250),
    (r"\bB[23]00\b", 2250, 2250, 1125),
    (r"\bB100\b", 1750, 1750, 875),
    (r"\bH200 NVL", 836, 836, 418),
    (r"\bG?H200\b", 989, 989, 494.5),
    (r"\bH[18]00 PCIe", 756, 756, 378),
    (r"\bH100 NVL", 835, 835, 417.5),
    (r"\bH[18]00\b", 989, 989, 494.5),
    (r"\bH20\b", 148, 148, 74),
    (r"\bA[18]00\b", 312, 312, 156),
    (r"\bA40\b", 149.7, 149.7, 74.8),
    (r"\bA30\b", 165, 165, 82),
    (r"\bA10\b", 125, 125, 62.5),
    (r"\bRTX A6000\b", 154.8, 154.8, 77.4),
    (r"\bL40S\b", 362.05, 362.05, 183),
    (r"\bL40\b", 181.05, 181.05, 90.5),
    (r"\bL4\b", 121, 121, 60),
    (r"\bV100-PCIE", 0, 112, 0),
    (r"\bV100\b", 0, 125, 0),
    (r"\bT4\b", 0, 65, 0),
    (r"\bRTX 5090\b(?! D)", 209.5, 209.5, 104.8),
    (r"\bRTX 4090\b(?! D)", 165.2, 165.2, 82.6),
    (r"\bRTX 3090 Ti\b", 80, 80, 40),
    (r"\bRTX 3090\b", 71, 71, 35.6),
    (r"\bMI3(00|25)X\b", 1307.4, 1307.4, 653.7),
    (r"\bMI250X\b", 191.5, 191.5, 0),
    (r"\bMI2[15]0\b", 181, 181, 0),
)
_LESS_THAN_WHOLE: Final = re.compile(r"\bMIG\b|\bLaptop\b|Max-Q", re.IGNORECASE)


def peak_flops(device_name: str, number_format: str = "bf16") -> float | None:
    """Return the dense peak of a card in FLOP/s, by its name as torch says it; None where it is not in the table.

    `number_format` is one of `FORMATS`; float16 is that with accumulation in float32.
    """
    column = FORMATS.index(number_format)
    if _LESS_THAN_WHOLE.search(device_name):
        return None
    for pattern, *peaks in _PEAKS:
        if re.search(pattern, device_name):
            return peaks[column] * TERA or None
    return None


def present_device_name() -> str | None:
    """Return the name of this thread's CUDA device where CUDA is in use, else None; never initialises it."""
    # Another thread may be in the midst of importing torch.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    if cuda is None or is_initialized is None or not is_initialized():
        return None
    return str(cuda.get_device_name(cuda.current_device()))
