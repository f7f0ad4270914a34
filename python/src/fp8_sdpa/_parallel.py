"""Attention of sequences that are spread over processes: context parallelism.

Keys and values are gathered, rows of queries stay where they are (Llama 3, arXiv 2407.21783, section
3.3.2). Causal work is balanced by giving each process one part from the front of the sequence and the
one that mirrors it from the back.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from fp8_sdpa._ops import _finite, attention_fp8, quantise


def shard(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """This process' rows of x: parts `rank` and `2 * size - 1 - rank` of 2 * size along axis 2.

    Args:
        x: (batch, heads, seq, head_dim); 2 * the group's size divides seq.
        group: None for the default group.

    Raises:
        ValueError: seq cannot be cut so.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if x.shape[2] % (2 * size) != 0:
        raise ValueError(
            f"seq is {x.shape[2]}; context parallelism over {size} needs a multiple of {2 * size}"
        )
    parts = x.chunk(2 * size, dim=2)
    return torch.cat((parts[rank], parts[2 * size - 1 - rank]), dim=2)


def unshard(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The whole sequence on every process, from what shard() made or context_parallel() returned."""
    size = dist.get_world_size(group)
    shards = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(size)]
    dist.all_gather(shards, x.contiguous(), group=group)
    fronts, backs = zip(*(s.chunk(2, dim=2) for s in shards), strict=True)
    return torch.cat((*fronts, *reversed(backs)), dim=2)


def _descale_of_all(q: Tensor, rotate: bool, seed: int, group: dist.ProcessGroup | None) -> Tensor:
    """The descale that q, gathered, would have: amax does not mind the order."""
    alone = quantise(q, rotate=rotate, seed=seed)
    # A head of zeros alone has descale 1, which is no amax.
    seen = alone.codes.view(torch.uint8).bitwise_and(0x7F).amax(dim=(2, 3)) > 0
    largest = torch.where(seen, alone.descale, 0.0)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    return torch.where(largest > 0, largest, 1.0)


def context_parallel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotate: bool = True,
    smooth: bool = True,
    seed: int = 0,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """attention() of sequences of which every process of `group` holds a shard().

    Where 32 * size divides seq and seq is above 256 * size, every row has the bits that attention() of
    the whole gives it with batch_invariant, whatever the number of processes and the order in which they
    arrive; else nearly so.

    Args:
        q, k, v: this process' shards: (batch, heads, seq / size, head_dim), rows as shard() picks them;
            of equal lengths. head_dim 64, 128 or 256.
        group: None for the default group: NCCL for CUDA tensors, gloo for CPU tensors.
        causal, scale, rotate, smooth, seed, return_lse: as in attention().

    Returns:
        out (and lse) of this process' rows. K and V of the whole are held while it runs.

    Raises:
        ValueError: q, k and v have different lengths, or an odd one. Others as attention().
    """
    rows = q.shape[2]
    if k.shape[2] != rows or rows % 2 != 0:
        raise ValueError(f"q has {rows} rows here and k {k.shape[2]}; expected equal even numbers")
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    all_k, all_v = unshard(k, group), unshard(v, group)
    codes_k = quantise(all_k, rotate=rotate, seed=seed, smooth=smooth)
    codes_v = quantise(all_v)
    codes_q = quantise(q, _descale_of_all(q, rotate, seed, group), rotate=rotate, seed=seed)

    half, seq = rows // 2, rows * size
    outs, lses = [], []
    for part, codes in zip((rank, 2 * size - 1 - rank), codes_q.codes.chunk(2, dim=2), strict=True):
        keys = (part + 1) * half if causal else seq
        out, lse = attention_fp8(
            codes,
            codes_k.codes[:, :, :keys],
            codes_v.codes[:, :, :keys],
            codes_q.descale,
            codes_k.descale,
            codes_v.descale,
            causal=causal,
            scale=scale,
            out_dtype=torch.float16 if q.dtype == torch.float16 else torch.bfloat16,
            return_lse=True,
            batch_invariant=True,
        )
        outs.append(out)
        lses.append(lse)
    out = torch.cat(outs, dim=2)
    if not return_lse:
        return out
    lse = torch.cat(lses, dim=2)
    if smooth:  # q . mean was taken off all scores of a row
        mean = _finite(all_k).mean(dim=2).repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        dots = torch.einsum("bhsd,bhd->bhs", q.float(), mean)
        lse = lse + dots * (q.shape[3] ** -0.5 if scale is None else scale)
    return out, lse
