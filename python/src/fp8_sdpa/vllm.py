"""An attention backend of vLLM: FP8 caches in pages, appended to and read by this library.

    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    register_backend(AttentionBackendEnum.CUSTOM, "fp8_sdpa.vllm.Backend")
    # vllm serve MODEL --kv-cache-dtype fp8 --attention-backend CUSTOM

A plugin of the group vllm.general_plugins is where the two lines belong: vLLM runs it in every process.
Written for vLLM 0.29 to 0.33, whose caches are (pages, heads_kv, page_size, 2 * head_dim) by strides, K
before V; tested on stand-ins of its classes, not on vLLM itself.
"""

import dataclasses

import torch
from torch import Tensor
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    MultipleOf,
)

from fp8_sdpa._ops import quantise
from fp8_sdpa._varlen import append, attention_varlen_fp8


@dataclasses.dataclass
class Metadata:
    """Of a step: what vLLM's CommonAttentionMetadata says, as attention_varlen_fp8() takes it."""

    tokens: int
    longest: int  # an upper bound
    slot_mapping: Tensor
    sequences: dict[str, Tensor | int | bool]


class Builder(AttentionMetadataBuilder):
    """Copies references: nothing is computed, and nothing synchronises."""

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata, fast_build: bool = False) -> Metadata:
        step = common_attn_metadata
        return Metadata(
            tokens=step.num_actual_tokens,
            longest=step.max_seq_len,
            slot_mapping=step.slot_mapping,
            sequences={
                "cu_seqlens_q": step.query_start_loc,
                "max_seqlen_q": step.max_query_len,
                "seqused_k": step.seq_lens,
                "block_table": step.block_table_tensor,
                "causal": bool(step.causal),
            },
        )


class Impl(AttentionImpl):
    """One layer. Q is quantised with a scale per head; K and V have the cache's."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        **more: object,
    ) -> None:
        unserved = {
            "alibi_slopes": alibi_slopes,
            "sliding_window": sliding_window,
            "logits_soft_cap": logits_soft_cap,
            "kv_sharing_target_layer_name": kv_sharing_target_layer_name,
            **more,
        }
        for name, value in unserved.items():
            if value is not None:
                raise NotImplementedError(f"fp8_sdpa.vllm: {name} is not served")
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"fp8_sdpa.vllm: attn_type {attn_type} is not served")
        if kv_cache_dtype not in Backend.supported_kv_cache_dtypes:
            raise NotImplementedError(f"fp8_sdpa.vllm: kv_cache_dtype is {kv_cache_dtype}; fp8 is served")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, scale
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype

    def fused_output_quant_supported(self, quant_key: object) -> bool:
        """Whether vLLM may ask forward() for codes: E4M3 by one scale that is known before."""
        from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8StaticTensorSym  # noqa: PLC0415

        return quant_key == kFp8StaticTensorSym

    def forward(
        self,
        layer: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: Metadata | None,
        output: Tensor,
        output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:
        """query, key, value and output are (tokens, heads, head_dim), some of the last ones padding. With
        output_scale, output is float8_e4m3fn and holds O / output_scale."""
        if output_block_scale is not None:
            raise NotImplementedError("fp8_sdpa.vllm: an output with scales of blocks is not served")
        if attn_metadata is None:  # vLLM measures memory
            return output.zero_()
        tokens = attn_metadata.tokens
        codes = kv_cache.view(torch.float8_e4m3fn).transpose(1, 2)
        k_cache, v_cache = codes.split(self.head_size, -1)
        slots = attn_metadata.slot_mapping
        append(
            key[: len(slots)], value[: len(slots)], k_cache, v_cache, slots, layer._k_scale, layer._v_scale
        )
        room = attn_metadata.sequences["block_table"].shape[1] * k_cache.shape[1]
        q = quantise(query[:tokens].transpose(0, 1).unsqueeze(0))
        out = attention_varlen_fp8(
            q.codes.squeeze(0).transpose(0, 1),
            k_cache,
            v_cache,
            q.descale,
            layer._k_scale,
            layer._v_scale,
            max_seqlen_k=min(attn_metadata.longest, room),
            scale=self.scale,
            out_dtype=output.dtype,
            out_scale=output_scale,
            **attn_metadata.sequences,
        )
        output[:tokens] = out
        return output


class Backend(AttentionBackend):
    """What vLLM asks of a backend before it takes it."""

    supported_dtypes = [torch.float16, torch.bfloat16]  # noqa: RUF012
    supported_kv_cache_dtypes = ["fp8", "fp8_e4m3"]  # noqa: RUF012

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[Impl]:
        return Impl

    @staticmethod
    def get_builder_cls() -> type[Builder]:
        return Builder

    @staticmethod
    def get_supported_kernel_block_sizes(_kv_cache_spec: object = None) -> list[MultipleOf]:
        return [MultipleOf(16)]

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return [64, 128, 256]

    @classmethod
    def supports_compute_capability(cls, capability) -> bool:
        return capability >= (8, 0)
