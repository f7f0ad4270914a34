"""The operators torch.ops.fp8_sdpa.*, and functions that call them with checked arguments."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

torch.ops.load_library(pathlib.Path(__file__).with_name("_fp8_sdpa.so"))
_ops = torch.ops.fp8_sdpa
_attention_fp8_out, _attention_fp8_lse = _ops.attention_fp8.default, _ops.attention_fp8.lse

# --- errors ------------------------------------------------------------------------------------

_KINDS: dict[str, type[Exception]] = {
    "ValueError: ": ValueError,
    "NotImplementedError: ": NotImplementedError,
}


def _named(error: RuntimeError) -> Exception:
    """The library's refusal as the error whose name it begins with."""
    text = str(error)
    for prefix, kind in _KINDS.items():
        if text.startswith(prefix):
            return kind(text.removeprefix(prefix))
    return error


def _call(op: Callable, *inputs: object, **options: object) -> Tensor | tuple[Tensor, ...] | str:
    try:
        return op(*inputs, **options)
    except RuntimeError as error:
        raise _named(error) from None


# --- tensors without data: torch.compile, torch.export ----------------------------------------------


def _like(x: Tensor, head_dim: int, dtype: torch.dtype) -> Tensor:
    """(batch, heads, seq, head_dim) with heads and seq in memory as those of x are."""
    batch, heads, seq, _ = x.shape
    if x.stride(1) >= x.stride(2):
        return x.new_empty((batch, heads, seq, head_dim), dtype=dtype)
    return x.new_empty((batch, seq, heads, head_dim), dtype=dtype).transpose(1, 2)


def _lse_like(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[:3], dtype=torch.float32)


def _served(head_dim: int) -> int:
    """The head_dim of the kernel: inputs are padded with zeros up to it."""
    return next((served for served in (64, 128, 256) if head_dim <= served), head_dim)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """What the operators refuse too, of tensors without data."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (batch, heads, seq, head_dim)")
        if x.device != q.device:
            raise ValueError(f"{name} lies on another device than q")
        if x.shape[3] != q.shape[3]:
            raise ValueError(f"{name} and q have different head_dims, {x.shape[3]} and {q.shape[3]}")


@torch.library.register_fake("fp8_sdpa::attention")
def _attention(q, k, v, *_rest, **_options):
    _check(q, k, v)
    dtype = torch.float16 if q.dtype == torch.float16 else torch.bfloat16
    return _like(q, _served(q.shape[3]), dtype)[..., : q.shape[3]]


@torch.library.register_fake("fp8_sdpa::attention.lse")
def _(q, k, v, *_rest, **_options):
    return _attention(q, k, v), _lse_like(q)


@torch.library.register_fake("fp8_sdpa::attention_fp8")
def _attention_fp8(
    q, k, v, q_descale, k_descale, v_descale, causal=False, scale=None, out_dtype=None, *_rest, **_options
):
    _check(q, k, v)
    for name, x in (("q_descale", q_descale), ("k_descale", k_descale), ("v_descale", v_descale)):
        if x.device != q.device:
            raise ValueError(f"{name} lies on another device than q")
    return _like(q, _served(q.shape[3]), out_dtype or torch.bfloat16)[..., : q.shape[3]]


@torch.library.register_fake("fp8_sdpa::attention_fp8.lse")
def _(q, *rest, **options):
    return _attention_fp8(q, *rest, **options), _lse_like(q)


@torch.library.register_fake("fp8_sdpa::quantise")
def _(x, descale=None, *, dtype=None, smooth=False, block_rows=0, **_options):
    batch, heads, seq, head_dim = x.shape
    of_all = (batch, heads) if block_rows == 0 else (batch, heads, -(-seq // block_rows))
    return (
        _like(x, head_dim, dtype or torch.float8_e4m3fn),
        x.new_empty(of_all if descale is None else (0,), dtype=torch.float32),
        x.new_empty((batch, heads, head_dim) if smooth else (0,), dtype=torch.float32),
        x.new_empty((), dtype=torch.int32),
    )


def _finite(x: Tensor) -> Tensor:
    """In float32, as a mean of quantise() takes it: what is not finite counts as 0."""
    return x.float().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


# --- gradients --------------------------------------------------------------------------------------


class _ForwardOnly(torch.autograd.Function):
    """An operator, of which asking for a gradient is an error that names it."""

    @staticmethod
    def forward(name: str, run: Callable, *tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        return run(*tensors)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: object) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx, *_gradients: Tensor) -> None:
        raise NotImplementedError(f"fp8_sdpa.{ctx.name} is forward only: it has no gradient")

    @staticmethod
    def jvp(ctx, *_tangents: Tensor) -> None:
        raise NotImplementedError(f"fp8_sdpa.{ctx.name} is forward only: it has no derivative")


def _without_gradient(name: str, run: Callable, *tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """What run() makes of the tensors."""
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return _ForwardOnly.apply(name, run, *tensors)
    return run(*tensors)


# --- functions ------------------------------------------------------------------------------------


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotate: bool = True,
    smooth: bool = True,
    seed: int = 0,
    return_lse: bool = False,
    exact_lse: bool = False,
    batch_invariant: bool = False,
    granularity: str = "auto",
    precision: str = "fp8",
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale * q k^T + mask) v, computed in FP8 from tensors that are not.

    Q, K and V are quantised to E4M3 with scales of `granularity`, or as `precision` says, then
    attention runs, all on the current stream. Nothing synchronises; CUDA graphs can capture it. CPU
    tensors run on the host executor: the same kernels, slow.

    Args:
        q: (batch, heads_q, seq_q, head_dim), bfloat16, float16 or float32, by strides.
        k, v: (batch, heads_kv, seq_kv, head_dim); heads_kv divides heads_q. A head_dim that no kernel
            has is padded with zeros up to 64, 128 or 256.
        causal: query i sees keys j <= i + seq_kv - seq_q: aligned bottom-right. (PyTorch's is_causal
            is aligned top-left; fp8_sdpa.sdpa() is too.)
        scale: of the scores; None for 1 / sqrt(head_dim).
        rotate: a random rotation of q and k, by `seed`, before they are quantised: outliers of a
            channel cost less (FlashAttention-3, arXiv 2407.08608, section 3.3).
        smooth: the mean of the keys is subtracted before they are quantised (SageAttention, arXiv
            2410.02367, section 4.2).
        return_lse: also the natural log of the sum of exp(scores), with which partial results merge.
        exact_lse: of weights before they are rounded to FP8; slower.
        batch_invariant: on sm_90 (and on CPU tensors), a row's bits depend on its query, its keys, its
            number modulo 16 and whether seq_kv is above 128 alone, not on the batch or on other rows;
            slower for short or few sequences.
        granularity: "head", one scale per (batch, head), or "block", one for each 64 queries and each
            128 keys: outliers of a row cost other rows less. "block" falls back to "head" where no
            kernel has it (others than sm_90, at most 128 keys) or where it is predicted to be slower;
            with batch_invariant, only where no kernel has it. "auto" is "block", but "head" with
            batch_invariant. explain() says which is taken.
        precision: "fp8", or "int8": q and k in 8-bit integers, with one scale per (batch, head) whatever
            `granularity` is, and the weights and v in 16 bits (a float32 v in bfloat16). Several times
            more exact, at some four fifths of the speed; on sm_90 and for CPU tensors (SageAttention,
            arXiv 2410.02367, section 4).

    Returns:
        out, as q is shaped and laid out, float16 for a float16 q and bfloat16 otherwise; with
        return_lse, (out, lse), lse (batch, heads_q, seq_q) in float32. A row that sees no key has
        out = 0 and lse = -inf.

    Raises:
        ValueError: the tensors contradict each other.
        NotImplementedError: no kernel serves them on this device, with the reason.
    """
    blocks, int8 = _is_block(granularity, batch_invariant), _is_int8(precision)
    if int8 and v.dtype == torch.float32:
        v = v.to(torch.bfloat16)
    options = (causal, scale, rotate, smooth, seed, batch_invariant, blocks, int8)
    op, last = (_ops.attention.lse, (exact_lse,)) if return_lse else (_ops.attention.default, ())
    return _without_gradient("attention", lambda *x: _call(op, *x, *options, *last), q, k, v)


def _is_block(granularity: str, batch_invariant: bool) -> bool:
    if granularity not in ("auto", "head", "block"):
        raise ValueError(f"granularity is {granularity!r}; it must be 'auto', 'head' or 'block'")
    return granularity == "block" or (granularity == "auto" and not batch_invariant)


def _is_int8(precision: str) -> bool:
    if precision not in ("fp8", "int8"):
        raise ValueError(f"precision is {precision!r}; it must be 'fp8' or 'int8'")
    return precision == "int8"


def _descale(value: Tensor | float | None, like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """A tensor, which operators check and broadcast, or one of `shape`, else `like`'s (batch, heads)."""
    if isinstance(value, Tensor):
        return value
    return like.new_full(shape or like.shape[:2], 1.0 if value is None else value, dtype=torch.float32)


def _one(value: Tensor | float, like: Tensor) -> Tensor:
    """A tensor of one element, as operators take it."""
    if isinstance(value, Tensor):
        return value.reshape(1) if value.numel() == 1 else value
    return like.new_full((1,), value, dtype=torch.float32)


def attention_fp8(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_descale: Tensor | float | None = None,
    k_descale: Tensor | float | None = None,
    v_descale: Tensor | float | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    out_dtype: torch.dtype | None = None,
    out_scale: Tensor | float | None = None,
    return_lse: bool = False,
    exact_lse: bool = False,
    batch_invariant: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """attention() on codes that are FP8 already.

    Args:
        q, k, v: as in attention(), but float8_e4m3fn or float8_e5m2.
        q_descale: x ~ code * descale; float32, what broadcasts to (batch, heads_q), a number, or None
            for 1. k_descale, v_descale: (batch, heads_kv). Tensors are read when the kernel runs.
            Of blocks, as quantise(block_rows=...) makes them: three axes, each positive; q_descale
            (batch, heads_q, ceil(seq_q / 64)), the others (batch, heads_kv, ceil(seq_kv / 128)).
        out_dtype: torch.bfloat16 (None), torch.float16 or torch.float8_e4m3fn.
        out_scale: with torch.float8_e4m3fn, one positive number or float32: out holds O / out_scale,
            rounded to nearest even, at most 448 in magnitude.
        causal, scale, return_lse, exact_lse, batch_invariant: as in attention().

    Returns, raises: as attention().
    """
    a, b, c = q_descale, k_descale, v_descale
    if type(a) is not Tensor or type(b) is not Tensor or type(c) is not Tensor:
        blocks = any(isinstance(x, Tensor) and x.dim() == 3 for x in (a, b, c))
        shape = (1, 1, 1) if blocks else None
        a, b, c = _descale(a, q, shape), _descale(b, k, shape), _descale(c, v, shape)
    of_out = () if out_scale is None else (_one(out_scale, q),)
    # A call of a server's takes some microseconds: no function between, and no option that is the
    # operator's default, as PyTorch takes a tenth of one to read it.
    try:
        if return_lse:
            options = (causal, scale, out_dtype, batch_invariant, exact_lse, *of_out)
            made = _attention_fp8_lse(q, k, v, a, b, c, *options)
            out = made[0]
        elif scale is None and out_dtype is None and not batch_invariant and not of_out:
            made = out = _attention_fp8_out(q, k, v, a, b, c, causal)
        else:
            options = (causal, scale, out_dtype, batch_invariant, *of_out)
            made = out = _attention_fp8_out(q, k, v, a, b, c, *options)
    except RuntimeError as error:
        raise _named(error) from None
    # PyTorch marks what an operator without a gradient makes of tensors that require one: of six tensors,
    # one is asked.
    if out.requires_grad:
        if not return_lse:
            return _without_gradient("attention_fp8", Tensor.detach, made)
        return _without_gradient("attention_fp8", lambda out, lse: (out.detach(), lse.detach()), *made)
    return made


class Quantised(NamedTuple):
    """What quantise() makes: x ~ codes * descale, after its options."""

    codes: Tensor
    """As x is shaped and laid out, FP8."""
    descale: Tensor
    """(batch, heads), of blocks (batch, heads, blocks), float32."""
    mean: Tensor | None
    """(batch, heads, head_dim), float32: what smoothing subtracted; None without it."""
    infinities: Tensor
    """int32, no axes: how many elements were infinite; they saturate."""


def quantise(
    x: Tensor,
    descale: Tensor | float | None = None,
    *,
    dtype: torch.dtype | None = None,
    rotate: bool = False,
    seed: int = 0,
    smooth: bool = False,
    block_rows: int = 0,
) -> Quantised:
    """bfloat16, float16 or float32 to FP8 with one scale per (batch, head) or per block of its rows:
    amax / the largest code.

    Args:
        x: (batch, heads, seq, head_dim) by strides, head_dim 64, 128 or 256.
        descale: taken instead of amax's, as in attention_fp8(); what is too large saturates.
        dtype: torch.float8_e4m3fn (None) or torch.float8_e5m2.
        rotate, seed: of q and of k, both alike, or of neither: attention() says what for.
        smooth: of k: attention() says what for. Each row's LSE is then short of scale * q . mean.
        block_rows: 0 for a scale per (batch, head); 64 (of q) or 128 (of k and v) for one of each so
            many rows, which attention_fp8() takes on sm_90 and on CPU tensors.

    Raises: as attention().
    """
    if x.dim() != 4:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected (batch, heads, seq, head_dim)")
    of_all = x.shape[:2] if block_rows == 0 else (*x.shape[:2], -(-x.shape[2] // max(block_rows, 1)))
    given = None if descale is None else _descale(descale, x, of_all)
    options = {
        "dtype": dtype, "rotate": rotate, "seed": seed, "smooth": smooth, "block_rows": block_rows,
    }  # fmt: skip
    inputs = (x,) if given is None else (x, given)
    codes, made, mean, infinities = _without_gradient(
        "quantise", lambda *inputs: _call(_ops.quantise.default, *inputs, **options), *inputs
    )
    if given is not None:
        made = given.expand(of_all).contiguous()
    return Quantised(codes, made, mean if smooth else None, infinities)


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    exact_lse: bool = False,
    batch_invariant: bool = False,
    granularity: str = "auto",
    precision: str = "fp8",
) -> str:
    """Which kernel runs this call of attention() or attention_fp8(), and why, in some lines.

    Of attention_fp8() where q is FP8; `granularity` is then that of its descales, "auto" for "head", and
    `precision` is not looked at.

    Whether FP8 tensor cores multiply, the error to expect (of normal inputs: root mean square, as a
    part of the output's), the time predicted for it and for the others, the workspace, and why the
    other families of kernels do not serve. Nothing is launched.

    Raises: as attention().
    """
    if granularity == "auto" and q.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        granularity = "head"
    int8 = _is_int8(precision)
    if int8 and v.dtype == torch.float32:
        v = v.to(torch.bfloat16)
    text = _call(
        _ops.explain.default,
        q,
        k,
        v,
        causal=causal,
        scale=scale,
        return_lse=return_lse,
        exact_lse=exact_lse,
        batch_invariant=batch_invariant,
        blocks=_is_block(granularity, batch_invariant),
        int8=int8,
    )
    head_dim = q.shape[3]
    lines = [text]
    if _served(head_dim) != head_dim:
        lines.append(f"head_dim {head_dim} is padded with zeros to {_served(head_dim)}")
    return "\n".join(lines)
