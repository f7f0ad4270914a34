"""Sequences of lengths of their own: ragged batches, paged KV caches, decoding with them."""

import torch
from torch import Tensor

from fp8_sdpa._ops import _call, _descale, _finite, _one, _ops, _served, _without_gradient, quantise


@torch.library.register_fake("fp8_sdpa::attention_varlen_fp8")
def _attention_varlen_fp8(
    q, k, v, q_descale, k_descale, v_descale, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    seqused_k=None, block_table=None, fault=None, causal=False, scale=None, out_dtype=None,
    *_rest, **_options,
):  # fmt: skip
    return q.new_empty(q.shape, dtype=out_dtype or torch.bfloat16)


@torch.library.register_fake("fp8_sdpa::attention_varlen_fp8.lse")
def _(q, *rest, **options):
    out = _attention_varlen_fp8(q, *rest, **options)
    lse = (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])
    return out, q.new_empty(lse, dtype=torch.float32)


def _longest(given: int | None, name: str, offsets: Tensor | None, otherwise: int) -> int:
    if offsets is None:
        return otherwise if given is None else given
    if given is None:
        raise ValueError(f"{name} is missing: the most of any sequence, of those that cu_seqlens tells of")
    if given < 0:
        raise ValueError(f"{name} is {given}; it must be 0 or more")
    return given


def attention_varlen_fp8(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_descale: Tensor | float | None = None,
    k_descale: Tensor | float | None = None,
    v_descale: Tensor | float | None = None,
    *,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    fault: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    out_dtype: torch.dtype | None = None,
    out_scale: Tensor | float | None = None,
    return_lse: bool = False,
    exact_lse: bool = False,
    batch_invariant: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """attention_fp8() of sequences that differ in length, tokens before heads, as a server has them.

    Prompts, chunks of them and single new tokens may be in one batch. Lengths and the table are read
    when the kernel runs: nothing synchronises, and a CUDA graph, captured once, replays with others up
    to the maxima.

    Args:
        q: (total_q, heads_q, head_dim) with cu_seqlens_q, else (batch, seq_q, heads_q, head_dim);
            float8_e4m3fn or float8_e5m2, head_dim 64, 128 or 256, by strides.
        k, v: one of (total_k, heads_kv, head_dim) with cu_seqlens_k; (pages, page_size, heads_kv,
            head_dim) with block_table (vLLM, arXiv 2309.06180, section 4.2); (batch, seq_k, heads_kv,
            head_dim).
        q_descale: x ~ code * descale; float32, what broadcasts to (batch, heads_q), a number, or None
            for 1. k_descale, v_descale: (batch, heads_kv).
        cu_seqlens_q, cu_seqlens_k: (batch + 1) int32: rows [n, n + 1) of it are sequence n's.
        max_seqlen_q, max_seqlen_k: the most of any sequence; needed with cu_seqlens. Of pages
            max_pages * page_size if not given.
        seqused_k: (batch) int32: the first so many keys of each sequence; needed with block_table.
        block_table: (batch, max_pages) int32: key j is row j % page_size of page
            block_table[:, j // page_size].
        fault: (1) int32, which becomes 1 where a length or a page is none: nothing is read through
            it, and its sequence's rows are NaN, or not written where its queries are not known.
        causal: query i of a sequence sees its keys j <= i + keys - queries.
        scale, out_dtype, out_scale, return_lse, exact_lse, batch_invariant: as in attention_fp8(). With
            batch_invariant a row's bits do not depend on pages, or on how a prompt was cut, either.

    Returns:
        out, shaped as q and contiguous; with return_lse, (out, lse), lse float32 (heads_q, total_q) of
        packed queries, else (batch, heads_q, seq_q). A row that sees no key has out = 0, lse = -inf.

    Raises: as attention().
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() not in (3, 4):
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected tokens, heads, head_dim last")
    for name, offsets in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if offsets is not None and (offsets.dim() != 1 or offsets.numel() == 0):
            raise ValueError(f"{name} has shape {tuple(offsets.shape)}; expected (batch + 1)")
    if fault is None and torch.compiler.is_compiling():  # Inductor knows no argument that is written or None
        fault = q.new_zeros(1, dtype=torch.int32)
    heads_q, heads_kv = q.shape[-2], k.shape[-2]
    batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.numel() - 1
    most_k = 0 if block_table is None else block_table.shape[-1] * k.shape[1]
    inputs = (
        q,
        k,
        v,
        _descale(q_descale, q, (batch, heads_q)),
        _descale(k_descale, k, (batch, heads_kv)),
        _descale(v_descale, v, (batch, heads_kv)),
        cu_seqlens_q,
        cu_seqlens_k,
        max(_longest(max_seqlen_q, "max_seqlen_q", cu_seqlens_q, 0), 1),  # 0: all are empty
        _longest(max_seqlen_k, "max_seqlen_k", cu_seqlens_k, most_k),
        seqused_k,
        block_table,
        fault,
        causal,
        scale,
        out_dtype,
        batch_invariant,
    )
    overloads = _ops.attention_varlen_fp8
    op, inputs = (overloads.lse, (*inputs, exact_lse)) if return_lse else (overloads.default, inputs)
    inputs = (*inputs, None if out_scale is None else _one(out_scale, q))
    return _without_gradient("attention_varlen_fp8", lambda *x: _call(op, *x, *inputs[6:]), *inputs[:6])


def _own_rows(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """With zeros in the rows behind the last sequence's: whatever is there, it has no part in a scale."""
    own = torch.arange(x.shape[0], device=x.device) < cu_seqlens[-1]
    return torch.where(own[:, None, None], x, 0)


def _packed_codes(
    x: Tensor, *, rotate: bool = False, seed: int = 0, smooth: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Of (total, heads, head_dim), padded to a head_dim that kernels have, one descale per head."""
    x = torch.nn.functional.pad(x, (0, _served(x.shape[-1]) - x.shape[-1]))
    if x.numel() == 0:
        return x.to(torch.float8_e4m3fn), None
    made = quantise(x.transpose(0, 1).unsqueeze(0), rotate=rotate, seed=seed, smooth=smooth)
    return made.codes.squeeze(0).transpose(0, 1), made.descale


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotate: bool = True,
    smooth: bool = True,
    seed: int = 0,
    return_lse: bool = False,
    exact_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """attention() of packed sequences that differ in length, as flash_attn_varlen_func() takes them.

    Q, K and V are quantised to E4M3 with one scale per head for all sequences together, then
    attention_varlen_fp8() runs. Nothing synchronises.

    Args:
        q: (total_q, heads_q, head_dim), bfloat16, float16 or float32, by strides.
        k, v: (total_k, heads_kv, head_dim); heads_kv divides heads_q. A head_dim that no kernel has is
            padded with zeros up to 64, 128 or 256.
        cu_seqlens_q, cu_seqlens_k: (batch + 1) int32: rows [n, n + 1) of it are sequence n's.
        max_seqlen_q, max_seqlen_k: the most of any sequence.
        causal: query i of a sequence sees its keys j <= i + keys - queries.
        scale, rotate, smooth, seed, exact_lse: as in attention().
        return_lse: also the natural log of the sum of exp(scores).

    Returns:
        out, shaped as q, float16 for a float16 q and bfloat16 otherwise; with return_lse, (out, lse), lse
        (heads_q, total_q) in float32. A row that sees no key has out = 0 and lse = -inf.

    Raises: as attention().
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 3:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (total, heads, head_dim)")
        if x.shape[2] != q.shape[2]:
            raise ValueError(f"{name} and q have different head_dims, {x.shape[2]} and {q.shape[2]}")
    for name, offsets in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if offsets.dim() != 1 or offsets.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(offsets.shape)}; expected (batch + 1)")
    head_dim = q.shape[-1]
    if head_dim == 0:
        raise ValueError("head_dim is 0; it must be at least 1")
    scale = head_dim**-0.5 if scale is None else scale

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        own_q, own_k, own_v = (
            _own_rows(q, cu_seqlens_q),
            _own_rows(k, cu_seqlens_k),
            _own_rows(v, cu_seqlens_k),
        )
        q_codes, q_descale = _packed_codes(own_q, rotate=rotate, seed=seed)
        k_codes, k_descale = _packed_codes(own_k, rotate=rotate, seed=seed, smooth=smooth)
        v_codes, v_descale = _packed_codes(own_v)
        made = attention_varlen_fp8(
            q_codes,
            k_codes,
            v_codes,
            q_descale,
            k_descale,
            v_descale,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
            causal=causal,
            scale=scale,
            out_dtype=torch.float16 if q.dtype == torch.float16 else torch.bfloat16,
            return_lse=return_lse,
            exact_lse=exact_lse,
        )
        if not return_lse:
            return made[..., :head_dim]
        out, lse = made[0][..., :head_dim], made[1]
        if smooth and k.numel() > 0:  # of K as it was: what all keys had in common counts again
            mean = _finite(own_k).mean(0).repeat_interleave(q.shape[1] // k.shape[1], 0)
            lse = lse + scale * torch.einsum("thd,hd->ht", own_q.float(), mean)
        return out, lse

    return _without_gradient("attention_varlen", run, q, k, v)


@torch.library.register_fake("fp8_sdpa::append")
def _(*_inputs, **_options):
    return None


def append(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    k_descale: Tensor | float | None = None,
    v_descale: Tensor | float | None = None,
    *,
    cos_sin: Tensor | None = None,
    positions: Tensor | None = None,
    interleaved: bool = False,
    fault: Tensor | None = None,
) -> None:
    """Writes new keys and values into an FP8 cache in pages: K rotated (RoPE), both quantised.

    One kernel. What it is told is read when it runs: nothing synchronises, and a CUDA graph replays
    with other slots. attention_varlen_fp8() reads such caches, with descales of (batch, heads_kv) that
    are the cache's, repeated.

    Args:
        k, v: (tokens, heads_kv, head_dim), bfloat16, float16 or float32, head_dim a multiple of 16 up
            to 256, by strides.
        k_cache, v_cache: (pages, page_size, heads_kv, head_dim), float8_e4m3fn or float8_e5m2, by
            strides (vLLM, arXiv 2309.06180, section 4.2); written. They may be halves of one tensor.
        slot_mapping: (tokens) int64: token i becomes row slot % page_size of page slot // page_size.
            No two are equal; of a negative one nothing is written.
        k_descale, v_descale: x ~ code * descale; float32, what broadcasts to (heads_kv), a number, or
            None for 1. What is larger than the largest code saturates; NaN stays NaN.
        cos_sin: (max_positions, rotary_dim) float32: cosines of rotary_dim / 2 angles, then their sines
            (RoFormer, arXiv 2104.09864, section 3.4.2). The first rotary_dim columns of k, a multiple of
            16, are rotated, in fp32. v is not, nor is q: that is the caller's.
        positions: (tokens) int64: rows of cos_sin.
        interleaved: columns 2 i and 2 i + 1 are a pair; else i and i + rotary_dim / 2.
        fault: (1) int32, which becomes 1 where a slot is not within the cache, or a position not within
            cos_sin: nothing is written of such a token.

    Raises: as attention().
    """
    for name, x in (("k", k), ("v", v)):
        if x.dim() != 3:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (tokens, heads_kv, head_dim)")
    _call(
        _ops.append.default,
        k,
        v,
        k_cache,
        v_cache,
        slot_mapping,
        _descale(k_descale, k, (k.shape[-2],)),
        _descale(v_descale, k, (k.shape[-2],)),
        cos_sin,
        positions,
        interleaved,
        fault,
    )
