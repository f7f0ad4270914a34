"""FP8 attention in other people's models."""

import contextlib
import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from fp8_sdpa._ops import attention
from fp8_sdpa._sdpa import sdpa
from fp8_sdpa._varlen import attention_varlen

# How transformers tells of packed sequences: arguments of attention_varlen().
_PACKED = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


def register_transformers(name: str = "fp8_sdpa", *, fallback: bool = True) -> None:
    """Makes attn_implementation="fp8_sdpa" known to Hugging Face transformers.

        fp8_sdpa.hooks.register_transformers()
        model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="fp8_sdpa")

    Prompts without padding run in FP8, and so do single new tokens, and packed sequences, where the model
    is told of them (cu_seq_lens_q and the like, as DataCollatorWithFlattening gives them).

    Args:
        name: what attn_implementation calls it.
        fallback: layers with a mask (padding, sliding windows), dropout, a softcap, attention sinks or a
            head_dim that no kernel serves run in transformers' own "sdpa"; else they are declined by
            NotImplementedError, which names the reason.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def forward(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **options: object,
    ) -> tuple[Tensor, None]:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        lengths = [options.get(n) for n in _PACKED]
        packed = all(x is not None for x in lengths)
        unserved = [n for n in ("softcap", "s_aux", "position_bias") if options.get(n) is not None]
        try:
            if attention_mask is not None and not packed:
                raise NotImplementedError("attention_mask is given; only causal and none are served")
            if dropout:
                raise NotImplementedError(f"dropout is {dropout}; only 0.0 is served")
            if unserved:
                raise NotImplementedError(f"{unserved[0]} is not served")
            if packed and options.get("sliding_window") is not None:
                raise NotImplementedError("sliding_window is not served with packed sequences")
            if packed:
                one = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
                out = attention_varlen(*one, *lengths, causal=causal, scale=scaling)
                return out.to(query.dtype).unsqueeze(0), None
            out = attention(query, key, value, causal=causal and query.shape[2] > 1, scale=scaling)
        except (NotImplementedError, ValueError):
            if not fallback:
                raise
            return sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout, scaling, is_causal, **options
            )
        return out.to(query.dtype).transpose(1, 2), None

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, sdpa_mask)


@contextlib.contextmanager
def replace_sdpa(**options: bool | str) -> Iterator[None]:
    """Within it, torch.nn.functional.scaled_dot_product_attention is fp8_sdpa.sdpa, process-wide.

        with fp8_sdpa.hooks.replace_sdpa():
            image = pipeline("a cat").images[0]

    For models that call that function and have no name for another one: those of diffusers (its "native"
    backend) and timm, torch.nn.MultiheadAttention.

    Args:
        options: of sdpa(): rotate, smooth, precision, and fallback, which is on here.
    """
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = functools.partial(sdpa, **{"fallback": True} | options)
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before


def register_flash_attention(name: str = "fp8_sdpa") -> None:
    """Makes this library known to PyTorch as an implementation of flash attention (2.11 and newer).

        fp8_sdpa.hooks.register_flash_attention()
        torch.nn.attention.activate_flash_attention_impl("fp8_sdpa")
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.nn.attention.restore_flash_attention_impl()

    While it is active, CUDA tensors that PyTorch hands to flash attention, by that context or by its own
    choice, are computed by fp8_sdpa.attention(). Dropout is declined, and so is a gradient.

    Raises:
        NotImplementedError: this PyTorch has no such register.
    """
    if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
        raise NotImplementedError(f"PyTorch {torch.__version__} has no register_flash_attention_impl")
    torch.nn.attention.register_flash_attention_impl(name, register_fn=_FlashAttention)


class _FlashAttention:
    """The operators of PyTorch's flash attention on CUDA tensors, until remove()."""

    def __init__(self) -> None:
        self._library = torch.library.Library("aten", "IMPL", "CUDA")
        self._library.impl("_scaled_dot_product_flash_attention", _flash_forward, "CUDA")
        self._library.impl("_scaled_dot_product_flash_attention_backward", _flash_backward, "CUDA")

    def remove(self) -> None:
        self._library = None


def _flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple:
    """PyTorch asks for as many keys as queries where is_causal, so that both alignments are one."""
    if dropout_p != 0.0:
        raise NotImplementedError(f"fp8_sdpa: dropout_p is {dropout_p}; only 0.0 is served")
    out, lse = attention(query, key, value, causal=is_causal, scale=scale, return_lse=True)
    nothing = query.new_empty(0)
    return out, lse, None, None, query.shape[2], key.shape[2], nothing, nothing, nothing


def _flash_backward(*_inputs: object, **_options: object) -> None:
    raise NotImplementedError("fp8_sdpa is forward only: it has no gradient")
