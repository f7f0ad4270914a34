"""An attention backend of SGLang: FP8 pools, appended to and read by this library.

    # pyproject.toml of a plugin, which SGLang loads in its processes:
    [project.entry-points."sglang.srt.plugins"]
    fp8_sdpa = "fp8_sdpa.sglang:register"
    # sglang serve MODEL --kv-cache-dtype fp8_e4m3 --attention-backend fp8_sdpa

Where SGLang has no plugins yet, call register() in every process before its arguments are parsed.
Written for SGLang's interface from its registry of backends on (pull request 10629, September 2025) to
September 2026, with either way of preparing CUDA graphs: capture and replay, or out_graph. Pools are
(size + page_size, heads_kv, head_dim), K and V apart. Tested on stand-ins of SGLang's classes, not on
SGLang itself.
"""

import dataclasses

import torch
from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.server_args import add_attention_backend_choices
from torch import Tensor

from fp8_sdpa._ops import quantise
from fp8_sdpa._varlen import append, attention_varlen_fp8

# What is served of a layer's attributes, the usual value first: an attribute that is missing has it.
_LAYER: dict[str, tuple] = {
    "attn_type": ("decoder",),
    "sliding_window_size": (-1, None),
    "logit_cap": (0, None),
    "is_cross_attention": (False,),
    "use_irope": (False, None),
    "xai_temperature_len": (-1, None),
    "pos_encoding_mode": ("NONE",),
    "head_dim": (64, 128, 256),
}
# What a step must not have: masks of trees or of items, encoders, keys spread over devices.
_STEP = ("spec_info", "encoder_lens", "multi_item_delimiter_indices", "attn_cp_metadata", "attn_dcp_metadata")
_SINGLE = ("DECODE", "IDLE")
_MODES = (*_SINGLE, "EXTEND", "MIXED", "SPLIT_PREFILL")
_POOLS = (torch.float8_e4m3fn, torch.float8_e5m2)


def register(name: str = "fp8_sdpa") -> None:
    """Makes --attention-backend `name` known to SGLang in this process."""
    add_attention_backend_choices([name])
    register_attention_backend(name)(Backend)


@dataclasses.dataclass
class Metadata:
    """Of a step: what SGLang's ForwardBatch says, as attention_varlen_fp8() takes it."""

    tokens: int  # rows of q that are a sequence's; those after them are padding
    in_buffers: bool  # its tensors are those that CUDA graphs were captured with
    sequences: dict[str, Tensor | int | bool]


class Backend(AttentionBackend):
    """All layers. K and V have the layer's scales, or 1; Q is quantised.

    Q of single new tokens has a scale per (sequence, head), so that padding changes no other row. Q of
    prompts has a scale per head, for all sequences of the step.

    Args:
        runner: SGLang's ModelRunner, whose two pools are used.

    Raises:
        NotImplementedError: the pool is not FP8, or of a kind that is not served.
    """

    def __init__(self, runner) -> None:
        super().__init__()
        pool = runner.token_to_kv_pool
        translator = getattr(runner, "kv_index_translator", None)
        if pool.dtype not in _POOLS:
            raise NotImplementedError(f"fp8_sdpa.sglang: the pool holds {pool.dtype}; fp8_e4m3 is served")
        unserved = {
            "a pool with a scale per block": getattr(pool, "is_quantized_kv_cache", False),
            "a pool of virtual slots": getattr(translator, "is_translating", False),
            "multi-head latent attention": getattr(runner, "use_mla_backend", False),
        }
        for what, found in unserved.items():
            if found:
                raise NotImplementedError(f"fp8_sdpa.sglang: {what} is not served")
        # SGLang asks its backends for these four.
        self.token_to_kv_pool, self.req_to_token_pool = pool, runner.req_to_token_pool
        self.kv_index_translator = translator
        self.max_context_len = self.req_to_token_pool.req_to_token.shape[1]
        self.page_size = pool.page_size
        self.forward_metadata: Metadata | None = None
        self._tables: Tensor | None = None  # of CUDA graphs, as _lengths: (max_bs, pages of a sequence)
        self._lengths: Tensor | None = None  # (max_bs)

    # --- before a step ------------------------------------------------------------------------------

    def init_forward_metadata(self, forward_batch) -> None:
        """Of a step that no CUDA graph replays.

        Lengths are read on the host where SGLang has them there. Those of prompts are copied to it where
        it has not, which synchronises.
        """
        step = forward_batch
        mode = _admitted(step.forward_mode, {name: getattr(step, name, None) for name in _STEP})
        self.forward_metadata = None
        if step.batch_size == 0:
            return
        most_k = self._longest(getattr(step, "seq_lens_cpu", None), step.batch_size)
        sequences = {
            "seqused_k": step.seq_lens.to(torch.int32),
            "block_table": self._pages_of(step.req_pool_indices, most_k),
            "max_seqlen_k": most_k,
        }
        tokens = step.batch_size
        if mode not in _SINGLE:
            queries = getattr(step, "extend_seq_lens_cpu", None)
            queries = step.extend_seq_lens.tolist() if queries is None else queries
            tokens = sum(queries)
            offsets = step.extend_seq_lens.new_zeros(len(queries) + 1, dtype=torch.int32)
            torch.cumsum(step.extend_seq_lens, 0, out=offsets[1:])
            sequences |= {"cu_seqlens_q": offsets, "max_seqlen_q": max(queries), "causal": True}
        self.forward_metadata = Metadata(tokens, False, sequences)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Buffers of 4 * max_bs * max_context_len / page_size bytes, which captured graphs read."""
        pages = -(-self.max_context_len // self.page_size)
        table = self.req_to_token_pool.req_to_token
        self._tables = table.new_zeros(max_bs, pages, dtype=torch.int32)
        self._lengths = table.new_zeros(max_bs, dtype=torch.int32)

    def init_forward_metadata_capture_cuda_graph(
        self, bs, num_tokens, req_pool_indices, seq_lens, encoder_lens, forward_mode, spec_info, **_more
    ) -> None:
        """Of a graph of single new tokens. Prompts are declined."""
        more = {"encoder_lens": encoder_lens, "spec_info": spec_info}
        self._fill(bs, req_pool_indices, seq_lens, None, forward_mode, more)

    def init_forward_metadata_replay_cuda_graph(
        self,
        bs,
        req_pool_indices,
        seq_lens,
        seq_lens_sum,
        encoder_lens,
        forward_mode,
        spec_info,
        seq_lens_cpu=None,
        **_more,
    ) -> None:
        """Of a step that such a graph replays."""
        more = {"encoder_lens": encoder_lens, "spec_info": spec_info}
        self._fill(bs, req_pool_indices, seq_lens, seq_lens_cpu, forward_mode, more)

    def init_forward_metadata_out_graph(self, forward_batch, in_capture: bool = False) -> None:
        """What took the place of the two above. Graphs that leave attention out come here with prompts."""
        step = forward_batch
        if step.forward_mode.name not in _SINGLE or self._tables is None:
            self.init_forward_metadata(step)
            return
        lengths = None if in_capture else getattr(step, "seq_lens_cpu", None)
        more = {name: getattr(step, name, None) for name in _STEP}
        self._fill(step.batch_size, step.req_pool_indices, step.seq_lens, lengths, step.forward_mode, more)

    def init_forward_metadata_in_graph(self, forward_batch) -> None:
        """Nothing is left to do."""

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """The keys of a row of padding: one, in the slot 0 that SGLang keeps for it."""
        return 1

    def _fill(self, bs, req_pool_indices, seq_lens, seq_lens_cpu, forward_mode, more) -> None:
        mode = _admitted(forward_mode, more)
        if mode not in _SINGLE:
            raise NotImplementedError(f"fp8_sdpa.sglang: a CUDA graph of {mode} is not served; DECODE is")
        used = self._pages_of(req_pool_indices[:bs], self._longest(seq_lens_cpu, bs))
        self._tables[:bs, : used.shape[1]].copy_(used)
        self._lengths[:bs].copy_(seq_lens[:bs])
        sequences = {
            "seqused_k": self._lengths[:bs],
            "block_table": self._tables[:bs],
            "max_seqlen_k": self.max_context_len,
        }
        self.forward_metadata = Metadata(bs, True, sequences)

    def _longest(self, seq_lens_cpu: Tensor | None, bs: int) -> int:
        """An upper bound of the keys of any sequence. Nothing synchronises."""
        return self.max_context_len if seq_lens_cpu is None else int(seq_lens_cpu[:bs].max())

    def _pages_of(self, rows: Tensor, keys: int) -> Tensor:
        """(sequences, pages) int32 of that many keys: SGLang's slots of a page follow each other."""
        slots = self.req_to_token_pool.req_to_token[:, : keys : self.page_size].index_select(0, rows)
        return slots if self.page_size == 1 else slots // self.page_size

    # --- a layer of it ------------------------------------------------------------------------------

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache: bool = True, **more) -> Tensor:
        """One new token of each sequence. Shapes: as forward_extend()."""
        k_pool, v_pool = self._appended(q, k, v, layer, forward_batch, save_kv_cache, more)
        made = quantise(q.reshape(-1, layer.tp_q_head_num, 1, layer.head_dim), dtype=k_pool.dtype)
        out = self._attention(made.codes.transpose(1, 2), made.descale, k_pool, v_pool, layer, q.dtype)
        return out.flatten(1)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache: bool = True, **more) -> Tensor:
        """Prompts, parts of them after a prefix in the pool, and single new tokens among them.

        Args:
            q: (tokens, heads_q * head_dim) or (tokens, heads_q, head_dim), bfloat16 or float16; its last
                rows may be padding.
            k, v: (tokens, heads_kv, head_dim), or None where another layer's are read.
            save_kv_cache: whether k and v are written; False where they are in the pool already.

        Returns:
            (tokens, heads_q * head_dim) in q's type; rows of padding are 0.

        Raises:
            NotImplementedError: what the layer or the step has is not served, with its name.
        """
        k_pool, v_pool = self._appended(q, k, v, layer, forward_batch, save_kv_cache, more)
        tokens = self.forward_metadata.tokens
        rows = q.view(-1, layer.tp_q_head_num, layer.head_dim)
        made = quantise(rows[:tokens].transpose(0, 1).unsqueeze(0), dtype=k_pool.dtype)
        codes = made.codes.squeeze(0).transpose(0, 1)
        out = self._attention(codes, made.descale, k_pool, v_pool, layer, q.dtype)
        if tokens < len(rows):
            out = torch.nn.functional.pad(out, (0, 0, 0, 0, 0, len(rows) - tokens))
        return out.flatten(1)

    def _attention(self, codes, descale, k_pool, v_pool, layer, dtype) -> Tensor:
        return attention_varlen_fp8(
            codes,
            k_pool,
            v_pool,
            descale,
            layer.k_scale,
            layer.v_scale,
            scale=layer.scaling,
            out_dtype=dtype,
            **self.forward_metadata.sequences,
        )

    def _appended(self, q, k, v, layer, forward_batch, save_kv_cache, more) -> tuple[Tensor, Tensor]:
        """The layer's pools in pages, (pages, page_size, heads_kv, head_dim), with k and v in them."""
        _check_layer(layer, more)
        if not self.forward_metadata.in_buffers and _capturing(q):
            raise NotImplementedError("fp8_sdpa.sglang: a CUDA graph of prompts is not served; DECODE's is")
        pool = self.token_to_kv_pool
        pools = [self._in_pages(x(layer.layer_id)) for x in (pool.get_key_buffer, pool.get_value_buffer)]
        if save_kv_cache and k is not None:
            slots = forward_batch.out_cache_loc
            slots = torch.where(slots > 0, slots, -1)  # slot 0 is of padding, any number of times
            k, v = (x.view(-1, layer.tp_k_head_num, layer.head_dim) for x in (k, v))
            append(k, v, *pools, slots, layer.k_scale, layer.v_scale)
        return tuple(pools)

    def _in_pages(self, buffer: Tensor) -> Tensor:
        if buffer.dim() != 3:
            raise NotImplementedError(
                f"fp8_sdpa.sglang: a pool of shape {tuple(buffer.shape)} is not served; "
                "(slots, heads_kv, head_dim) is"
            )
        pages = len(buffer) // self.page_size
        return buffer[: pages * self.page_size].unflatten(0, (pages, self.page_size))


def _admitted(forward_mode, more: dict[str, object]) -> str:
    """The name of the mode, of a step that is served."""
    _decline(more)
    if forward_mode.name not in _MODES:
        raise NotImplementedError(
            f"fp8_sdpa.sglang: forward_mode is {forward_mode.name}; served: {', '.join(_MODES)}"
        )
    return forward_mode.name


def _check_layer(layer: torch.nn.Module, more: dict[str, object]) -> None:
    _decline(more)
    for name, served in (*_LAYER.items(), ("v_head_dim", (layer.head_dim,))):
        value = getattr(layer, name, served[0])
        value = getattr(value, "value", value)  # of an enumeration
        if value not in served:
            right = ", ".join(str(x) for x in served if x is not None)
            raise NotImplementedError(f"fp8_sdpa.sglang: {name} is {value}; served: {right}")


def _decline(more: dict[str, object]) -> None:
    for name, value in more.items():
        if value is not None:
            raise NotImplementedError(f"fp8_sdpa.sglang: {name} is not served")


def _capturing(x: Tensor) -> bool:
    return x.is_cuda and torch.cuda.is_current_stream_capturing()
