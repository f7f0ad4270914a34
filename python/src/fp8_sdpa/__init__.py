"""FP8 attention for PyTorch: bf16 or half tensors in, attention on FP8 tensor cores, one call.

import torch, fp8_sdpa
q = k = v = torch.randn(2, 16, 8192, 128, device="cuda", dtype=torch.bfloat16)
out = fp8_sdpa.sdpa(q, k, v, is_causal=True)
print(fp8_sdpa.explain(q, k, v))
"""

from fp8_sdpa import hooks
from fp8_sdpa._ops import Quantised, attention, attention_fp8, explain, quantise
from fp8_sdpa._parallel import context_parallel, shard, unshard
from fp8_sdpa._sdpa import sdpa
from fp8_sdpa._varlen import append, attention_varlen, attention_varlen_fp8

__all__ = [
    "Quantised",
    "append",
    "attention",
    "attention_fp8",
    "attention_varlen",
    "attention_varlen_fp8",
    "context_parallel",
    "explain",
    "hooks",
    "quantise",
    "sdpa",
    "shard",
    "unshard",
]
