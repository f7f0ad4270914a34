"""fp8_sdpa.vllm on stand-ins of vLLM's classes: prompts, then tokens, in one cache in pages."""

import abc
import importlib
import sys
import types

import pytest
import torch
from conftest import UNQUANTISED, exact, normal, relative

HEADS, HEADS_KV, DIM, PAGE = 4, 2, 64, 16


@pytest.fixture
def backend(monkeypatch):
    """What fp8_sdpa.vllm takes from vLLM 0.33's vllm/v1/attention/backend.py, with its signatures."""

    class AttentionBackend(abc.ABC):
        @staticmethod
        @abc.abstractmethod
        def get_name(): ...
        @staticmethod
        @abc.abstractmethod
        def get_impl_cls(): ...
        @staticmethod
        @abc.abstractmethod
        def get_builder_cls(): ...

    class AttentionImpl(abc.ABC):
        @abc.abstractmethod
        def forward(
            self, layer, query, key, value, kv_cache, attn_metadata, output,
            output_scale=None, output_block_scale=None,
        ): ...  # fmt: skip

    class AttentionMetadataBuilder(abc.ABC):
        def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
            self.device = device

        @abc.abstractmethod
        def build(self, common_prefix_len, common_attn_metadata, fast_build=False): ...

    module = types.ModuleType("vllm.v1.attention.backend")
    module.AttentionBackend, module.AttentionImpl = AttentionBackend, AttentionImpl
    module.AttentionMetadataBuilder = AttentionMetadataBuilder
    module.AttentionType = types.SimpleNamespace(DECODER="decoder", ENCODER="encoder")
    module.MultipleOf = int
    quantisation = types.ModuleType("vllm.model_executor.layers.quantization.utils.quant_utils")
    quantisation.kFp8StaticTensorSym = "static, a scale a tensor"
    for made in (quantisation, module):
        folders = made.__name__.split(".")[:-1]
        for depth in range(len(folders)):
            name = ".".join(folders[: depth + 1])
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.delitem(sys.modules, "fp8_sdpa.vllm", raising=False)
    return importlib.import_module("fp8_sdpa.vllm").Backend


def cache_of(device, pages):
    """As vLLM 0.33 lays it out: (pages, heads, page_size, 2 dim), the heads of a token beside each other."""
    return torch.full((pages, PAGE, HEADS_KV, 2 * DIM), 0x7F, dtype=torch.uint8, device=device).transpose(
        1, 2
    )


def step_of(device, table, before, queries):
    """CommonAttentionMetadata of a step, with one request of padding."""
    lengths = [b + n for b, n in zip(before, queries, strict=True)]
    slots = [
        int(table[s, i // PAGE]) * PAGE + i % PAGE for s, n in enumerate(lengths) for i in range(before[s], n)
    ]
    offsets = torch.tensor([0, *queries, 0]).cumsum(0)
    as_words = {"dtype": torch.int32, "device": device}
    padded = torch.cat([table, torch.zeros(1, table.shape[1], dtype=table.dtype)])
    return types.SimpleNamespace(
        num_actual_tokens=sum(queries),
        query_start_loc=offsets.to(**as_words),
        max_query_len=max(queries),
        seq_lens=torch.tensor([*lengths, 0], **as_words),
        max_seq_len=1024,
        block_table_tensor=padded.to(**as_words),
        slot_mapping=torch.tensor([*slots, -1, -1], device=device),
        causal=True,
    )


def test_prompts_and_tokens_share_a_cache(backend, device):
    impl = backend.get_impl_cls()(HEADS, DIM, 0.1, HEADS_KV, kv_cache_dtype="fp8")
    builder = backend.get_builder_cls()(None, ["layer"], None, device)
    layer = torch.nn.Module()
    layer._k_scale, layer._v_scale = (torch.tensor(x, device=device) for x in (0.02, 0.01))
    cache = cache_of(device, 90)
    table = torch.randperm(90)[: 2 * 20].view(2, 20)
    seen = [[], []]  # keys and values of each sequence
    before = [0, 0]
    for queries in ([150, 37], [1, 1], [1, 4]):
        tokens = sum(queries)
        q, k, v = (normal(tokens + 2, h, DIM, device=device) for h in (HEADS, HEADS_KV, HEADS_KV))
        metadata = builder.build(0, step_of(device, table, before, queries))
        out = torch.full((tokens + 2, HEADS, DIM), 7.0, dtype=torch.bfloat16, device=device)
        assert impl.forward(layer, q, k, v, cache, metadata, out) is out
        assert (out[tokens:] == 7).all()  # padding
        codes = torch.full(out.shape, 7.0, device=device).to(torch.float8_e4m3fn)
        scale = torch.tensor(0.02, device=device)
        assert impl.forward(layer, q, k, v, cache, metadata, codes, scale) is codes
        assert (codes[tokens:].float() == 7).all()
        assert relative(0.02 * codes[:tokens].float(), out[:tokens].float()) < 0.04
        first = 0
        for s, n in enumerate(queries):
            own = slice(first, first + n)
            seen[s].append((k[own], v[own]))
            keys, values = (torch.cat(x).transpose(0, 1)[None] for x in zip(*seen[s], strict=True))
            want, _ = exact(q[own].transpose(0, 1)[None], keys, values, causal=True, scale=0.1)
            got = out[own].transpose(0, 1)[None]
            assert relative(got, want) < UNQUANTISED * (1 if n > 9 else 2)
            first += n
        before = [b + n for b, n in zip(before, queries, strict=True)]


def test_what_is_not_served_is_named(backend):
    make = backend.get_impl_cls()
    for name in (
        "alibi_slopes",
        "sliding_window",
        "logits_soft_cap",
        "kv_sharing_target_layer_name",
        "sinks",
    ):
        with pytest.raises(NotImplementedError, match=f"{name} is not served"):
            make(HEADS, DIM, 0.1, HEADS_KV, kv_cache_dtype="fp8", **{name: 1})
    with pytest.raises(NotImplementedError, match="attn_type encoder"):
        make(HEADS, DIM, 0.1, HEADS_KV, kv_cache_dtype="fp8", attn_type="encoder")
    with pytest.raises(NotImplementedError, match="kv_cache_dtype is auto"):
        make(HEADS, DIM, 0.1, HEADS_KV)
    impl = make(HEADS, DIM, 0.1, HEADS_KV, kv_cache_dtype="fp8_e4m3")
    out = torch.ones(3, HEADS, DIM)
    assert (impl.forward(None, out, out, out, None, None, out) == 0).all()
    with pytest.raises(NotImplementedError, match="scales of blocks"):
        impl.forward(None, out, out, out, None, None, out, torch.ones(1), torch.ones(1))
    assert impl.fused_output_quant_supported("static, a scale a tensor")
    assert not impl.fused_output_quant_supported("dynamic")
    assert backend.get_name() == "CUSTOM" and 128 in backend.get_supported_head_sizes()
    assert backend.get_supported_kernel_block_sizes() == [16]
    assert backend.supports_compute_capability((9, 0)) and not backend.supports_compute_capability((7, 5))
