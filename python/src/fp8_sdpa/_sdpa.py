"""A drop-in for torch.nn.functional.scaled_dot_product_attention."""

import torch
from torch import Tensor

from fp8_sdpa._ops import attention

# Of the import: what bears this name later may be sdpa() itself.
_pytorch_sdpa = torch.nn.functional.scaled_dot_product_attention


_LARGEST_HEAD_DIM = 256
_SERVED_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def _declined(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float
) -> str | None:
    """Why not, decided here, so that torch.compile knows it while it traces."""
    if attn_mask is not None:
        return "attn_mask is given; only is_causal is served"
    if dropout_p != 0.0:
        return f"dropout_p is {dropout_p}; only 0.0 is served"
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
        return "a tensor requires a gradient; there is none in FP8 (torch.no_grad() says so)"
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() not in (3, 4) or x.dim() != query.dim():
            return f"{name} has {x.dim()} axes; 4, or 3 without the batch, are served, of all three alike"
        if x.dtype not in _SERVED_DTYPES:
            return f"{name} is {x.dtype}, which is none of bfloat16, float16 and float32"
        if x.shape[-1] > _LARGEST_HEAD_DIM:
            return f"head_dim is {x.shape[-1]}; up to {_LARGEST_HEAD_DIM} is served"
    if value.shape[-1] != query.shape[-1]:
        return f"value and query have different head_dims, {value.shape[-1]} and {query.shape[-1]}"
    return None


def _causal_top_left(query: Tensor, key: Tensor, value: Tensor, **options) -> Tensor:
    """Query i sees keys j <= i, as PyTorch aligns is_causal."""
    rows, keys = query.shape[2], key.shape[2]
    if value.shape[2] != keys:
        raise ValueError(f"value and key have different lengths, {value.shape[2]} and {keys}")
    if rows <= keys:  # the keys behind the last row are seen by none
        return attention(query, key[:, :, :rows], value[:, :, :rows], causal=True, **options)
    first = attention(query[:, :, :keys], key, value, causal=True, **options)
    rest = attention(query[:, :, keys:], key, value, **options)
    return torch.cat((first, rest), dim=2)


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rotate: bool = True,
    smooth: bool = True,
    precision: str = "fp8",
    fallback: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, computed in FP8.

    Its arguments, shapes and alignment of is_causal (top-left: query i sees keys j <= i), and its
    dtype in the output. Query, key and value are (batch, heads, seq, head_dim), or without the batch.

    Args:
        rotate, smooth, precision: as in fp8_sdpa.attention().
        fallback: what is not served is handed to PyTorch, which says what is wrong with it, if anything.

    Raises, without fallback:
        NotImplementedError: a mask, dropout, a gradient, or tensors that no kernel serves.
        ValueError: the tensors contradict each other.
    """
    reason = _declined(query, key, value, attn_mask, dropout_p)
    try:
        if reason is not None:
            raise NotImplementedError(f"fp8_sdpa.sdpa: {reason}")
        if not enable_gqa and query.shape[-3] != key.shape[-3]:
            raise ValueError(
                f"query has {query.shape[-3]} heads and key {key.shape[-3]}: enable_gqa=True is for that"
            )
        q, k, v = (x.unsqueeze(0) if x.dim() == 3 else x for x in (query, key, value))
        run = _causal_top_left if is_causal else attention
        out = run(q, k, v, scale=scale, rotate=rotate, smooth=smooth, precision=precision)
    except (NotImplementedError, ValueError):
        if not fallback:
            raise
        return _pytorch_sdpa(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if query.dim() == 3:
        out = out.squeeze(0)
    return out if out.dtype == query.dtype else out.to(query.dtype)
