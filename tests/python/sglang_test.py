"""fp8_sdpa.sglang on stand-ins of SGLang's classes: prompts, parts of prompts and tokens in one pool.

SGLang is not installed here. What a step gives is compared with attention in float64 of what lies in the
pool after it: codes times scales.
"""

import abc
import enum
import importlib
import sys
import types

import fp8_sdpa
import pytest
import torch
from conftest import E4M3, E5M2, UNQUANTISED, WEIGHTS, exact, normal, relative

HEADS, HEADS_KV, DIM, CONTEXT = 4, 2, 64, 200
K_SCALE, V_SCALE = 0.02, 0.01
NAN = 0x7F  # a code that is NaN in both formats: what has not been written shows

ForwardMode = enum.IntEnum(
    "ForwardMode", "EXTEND DECODE MIXED IDLE TARGET_VERIFY DRAFT_EXTEND SPLIT_PREFILL DLLM_EXTEND"
)


@pytest.fixture
def sglang(monkeypatch):
    """What fp8_sdpa.sglang takes from SGLang's sglang/srt, with its signatures; `known` are its registers."""

    class AttentionBackend(abc.ABC):
        @abc.abstractmethod
        def init_forward_metadata(self, forward_batch): ...

        def forward(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
            decode = forward_batch.forward_mode == ForwardMode.DECODE
            run = self.forward_decode if decode else self.forward_extend
            return run(q, k, v, layer, forward_batch, save_kv_cache=save_kv_cache, **kwargs)

    known = types.SimpleNamespace(backends={}, choices=["triton"])
    contents = {
        "sglang.srt.layers.attention.attention_registry": {
            "register_attention_backend": lambda name: lambda make: known.backends.setdefault(name, make)
        },
        "sglang.srt.layers.attention.base_attn_backend": {"AttentionBackend": AttentionBackend},
        "sglang.srt.server_args": {"add_attention_backend_choices": known.choices.extend},
    }
    packages = ("sglang", "sglang.srt", "sglang.srt.layers", "sglang.srt.layers.attention")
    for name in (*packages, *contents):
        module = types.ModuleType(name)
        vars(module).update(contents.get(name, {}))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "fp8_sdpa.sglang", raising=False)
    module = importlib.import_module("fp8_sdpa.sglang")
    module.known = known
    return module


class Pool:
    """MHATokenToKVPool of one layer: bytes, seen as FP8. Slot 0 and its page are for padding."""

    def __init__(self, device, size=480, page_size=1, dtype=E4M3):
        self.size, self.page_size, self.dtype = size, page_size, dtype
        shape = (size + page_size, HEADS_KV, DIM)
        self.bytes = [torch.full(shape, NAN, dtype=torch.uint8, device=device) for _ in range(2)]
        for buffer in self.bytes:
            buffer[0] = 0

    def get_key_buffer(self, layer_id):
        assert layer_id == 3
        return self.bytes[0].view(self.dtype)

    def get_value_buffer(self, layer_id):
        assert layer_id == 3
        return self.bytes[1].view(self.dtype)


class Layer(torch.nn.Module):
    """RadixAttention."""

    def __init__(self, device, **other):
        super().__init__()
        self.tp_q_head_num, self.tp_k_head_num, self.tp_v_head_num = HEADS, HEADS_KV, HEADS_KV
        self.head_dim = self.v_head_dim = DIM
        self.scaling, self.layer_id, self.logit_cap, self.sliding_window_size = 0.1, 3, 0.0, -1
        self.is_cross_attention, self.attn_type = False, enum.Enum("Type", {"DECODER": "decoder"}).DECODER
        self.k_scale, self.v_scale = (torch.tensor(x, device=device) for x in (K_SCALE, V_SCALE))
        vars(self).update(other)


class Server:
    """A backend, its pools, and the requests in them: row r + 1 of req_to_token is request r's."""

    def __init__(self, sglang, device, requests=3, **pool):
        self.device, self.layer, self.pool = device, Layer(device), Pool(device, **pool)
        table = torch.zeros(requests + 1, CONTEXT, dtype=torch.int32, device=device)
        pages, page = self.pool.size // self.pool.page_size, self.pool.page_size
        drawn = (torch.randperm(pages)[: requests * (pages // requests)] + 1).view(requests, -1)
        slots = (drawn[..., None] * page + torch.arange(page)).flatten(1)[:, :CONTEXT]
        table[1:, : slots.shape[1]] = slots.to(device)
        self.slots, self.lengths = slots, [0] * requests
        runner = types.SimpleNamespace(
            token_to_kv_pool=self.pool, req_to_token_pool=types.SimpleNamespace(req_to_token=table)
        )
        self.backend = sglang.Backend(runner)

    def step(self, mode, news, *, padding=0, rows=0, on_host=True):
        """ForwardBatch: request r gets news[r] tokens; then `padding` tokens, of `rows` sequences, follow."""
        befores = self.lengths
        self.lengths = [b + n for b, n in zip(befores, news, strict=True)]
        whose = [r for r, n in enumerate(news) if n]
        slots = [int(self.slots[r, i]) for r in whose for i in range(befores[r], self.lengths[r])]
        as_long = {"dtype": torch.int64, "device": self.device}
        lengths = [*(self.lengths[r] for r in whose), *[1] * rows]
        batch = types.SimpleNamespace(
            forward_mode=mode,
            batch_size=len(lengths),
            seq_lens=torch.tensor(lengths, **as_long),
            seq_lens_cpu=torch.tensor(lengths) if on_host else None,
            req_pool_indices=torch.tensor([*(r + 1 for r in whose), *[0] * rows], **as_long),
            out_cache_loc=torch.tensor([*slots, *[0] * padding], **as_long),
            spec_info=None,
            encoder_lens=None,
        )
        if mode != ForwardMode.DECODE:
            queries = [*(news[r] for r in whose), *[0] * rows]
            batch.extend_seq_lens = torch.tensor(queries, dtype=torch.int32, device=self.device)
            batch.extend_seq_lens_cpu = queries if on_host else None
        return batch

    def tokens(self, batch):
        """q as SGLang's models give it, and k and v as RadixAttention does, of each token of the batch."""
        n = len(batch.out_cache_loc)
        q = normal(n, (HEADS + 3) * DIM, device=self.device)[:, : HEADS * DIM]  # of a fused projection
        k, v = (normal(n, HEADS_KV, DIM, device=self.device) for _ in range(2))
        return q, k, v

    def stored(self, r):
        """Keys and values of a request in the pool: (1, heads_kv, keys, head_dim), float64."""
        slots = self.slots[r, : self.lengths[r]].to(self.device)
        buffers = (self.pool.get_key_buffer(3), self.pool.get_value_buffer(3))
        scales = (K_SCALE, V_SCALE)
        return [
            x.float()[slots].double().transpose(0, 1)[None] * s for x, s in zip(buffers, scales, strict=True)
        ]

    def run(self, batch, news):
        """A step of random tokens, checked; its q, k, v and output."""
        q, k, v = self.tokens(batch)
        self.backend.init_forward_metadata(batch)
        out = self.backend.forward(q, k, v, self.layer, batch)
        self.check(out, q, k, v, news, batch.forward_mode == ForwardMode.DECODE)
        return q, k, v, out

    def check(self, out, q, k, v, news, decode):
        """`out` is attention of what is stored, and that is k and v, up to the rounding to FP8."""
        assert out.shape == q.shape and out.dtype == q.dtype
        coarse = 1 if self.pool.dtype == E4M3 else 2  # E5M2 has a bit less
        tokens, first = sum(news), 0
        by_head = q[:tokens].view(tokens, HEADS, DIM).transpose(0, 1)[None]
        for r, n in enumerate(news):
            own = slice(first, first + n)
            first += n
            if n == 0:
                continue
            keys, values = self.stored(r)
            for new, pooled in ((k, keys), (v, values)):
                found, want = pooled[0, :, -n:].cpu(), new[own].transpose(0, 1).double().cpu()
                assert ((found - want).abs() <= 2**-4 * coarse * want.abs() + 1e-3).all()
            queries = by_head[:, :, own]
            got = out[own].view(n, HEADS, DIM).transpose(0, 1)[None]
            want, _ = exact(queries, keys, values, causal=True, scale=0.1)
            assert relative(got, want) < UNQUANTISED * coarse
            # With the codes of Q too, whose scale is of this sequence or of all: only weights are rounded.
            made = fp8_sdpa.quantise(queries if decode else by_head, dtype=self.pool.dtype)
            codes = made.codes if decode else made.codes[:, :, own]
            rounded = codes.float() * made.descale[..., None, None]
            want, _ = exact(rounded, keys, values, causal=True, scale=0.1)
            assert relative(got, want) < WEIGHTS * coarse


@pytest.mark.parametrize("page_size, dtype", [(1, E4M3), (16, E4M3), (16, E5M2)])
@pytest.mark.parametrize("on_host", [True, False])
def test_prompts_and_tokens_share_a_pool(sglang, device, page_size, dtype, on_host):
    server = Server(sglang, device, page_size=page_size, dtype=dtype)
    for mode, news in (
        (ForwardMode.EXTEND, [70, 33, 0]),
        (ForwardMode.EXTEND, [50, 0, 1]),  # the first one after a prefix
        (ForwardMode.MIXED, [1, 17, 20]),
        (ForwardMode.DECODE, [1, 1, 1]),
        (ForwardMode.SPLIT_PREFILL, [0, 12, 0]),
        (ForwardMode.DECODE, [1, 0, 1]),
    ):
        server.run(server.step(mode, news, on_host=on_host), news)
    for buffer in server.pool.bytes:
        written = (buffer != NAN).flatten(1).any(1).sum()
        assert written == 1 + sum(server.lengths)  # and slot 0


@pytest.mark.parametrize("mode, news", [(ForwardMode.EXTEND, [9, 0, 30]), (ForwardMode.DECODE, [1, 1, 0])])
def test_padding_changes_nothing(sglang, device, mode, news):
    server = Server(sglang, device, page_size=16)
    server.run(server.step(ForwardMode.EXTEND, [20, 3, 0]), [20, 3, 0])
    batch = server.step(mode, news, padding=2, rows=2)
    q, k, v = server.tokens(batch)
    for x in (q, k, v):
        x[-2:] = 3e4
    server.backend.init_forward_metadata(batch)
    out = server.backend.forward(q, k, v, server.layer, batch)
    server.check(out, q, k, v, news, mode == ForwardMode.DECODE)
    assert (out[-2:] == 0).all()  # of values that are 0: those of slot 0
    assert all((buffer[0] == 0).all() for buffer in server.pool.bytes)


def test_what_is_stored_already_is_read(sglang, device):
    server = Server(sglang, device)
    server.layer.k_scale = server.layer.v_scale = None  # 1: the larger ones of K and V are stored well
    batch = server.step(ForwardMode.EXTEND, [40, 0, 11])
    q, k, v = server.tokens(batch)
    server.backend.init_forward_metadata(batch)
    out = server.backend.forward(q, k, v, server.layer, batch)
    slots = batch.out_cache_loc
    assert torch.equal(server.pool.get_key_buffer(3)[slots].float(), k.to(E4M3).float())
    before = [x.clone() for x in server.pool.bytes]
    assert torch.equal(server.backend.forward(q, None, None, server.layer, batch), out)
    again = server.backend.forward(q, v, k, server.layer, batch, save_kv_cache=False)
    assert torch.equal(again, out)
    half = server.backend.forward(q.half(), None, None, server.layer, batch)
    assert half.dtype == torch.float16 and relative(half, out) < 0.01
    assert all(torch.equal(a, b) for a, b in zip(server.pool.bytes, before, strict=True))


@pytest.mark.parametrize("united", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
def test_a_graph_replays_with_other_requests(sglang, device, united, page_size):
    """On a CPU the captured step runs again, on the tensors with which it was captured."""
    server = Server(sglang, device, page_size=page_size)
    backend = server.backend
    backend.init_cuda_graph_state(8, 8)
    static = server.step(ForwardMode.DECODE, [0, 0, 0], padding=4, rows=4)
    fill = backend.get_cuda_graph_seq_len_fill_value()
    assert (static.seq_lens == fill).all()
    q, k, v = server.tokens(static)

    def prepare(capture):
        mode, rows, lengths = static.forward_mode, static.req_pool_indices, static.seq_lens
        if united:
            backend.init_forward_metadata_out_graph(static, in_capture=capture)
            backend.init_forward_metadata_in_graph(static)
        elif capture:
            backend.init_forward_metadata_capture_cuda_graph(4, 4, rows, lengths, None, mode, None)
        else:
            backend.init_forward_metadata_replay_cuda_graph(
                4, rows, lengths, int(lengths.sum()), None, mode, None, static.seq_lens_cpu
            )

    def step():
        return backend.forward(q, k, v, server.layer, static)

    prepare(capture=True)
    captured = backend.forward_metadata
    step()
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = step()
    for longer, news in (([90, 5, 0], [1, 1, 0]), ([0, 0, 47], [1, 1, 1]), ([0, 30, 0], [0, 1, 0])):
        server.run(server.step(ForwardMode.EXTEND, longer), longer)
        padding = 4 - sum(news)
        batch = server.step(ForwardMode.DECODE, news, padding=padding, rows=padding)
        for name in ("seq_lens", "req_pool_indices", "out_cache_loc"):
            getattr(static, name).copy_(getattr(batch, name))
        static.seq_lens_cpu = batch.seq_lens_cpu
        for buffer, new in zip((q, k, v), server.tokens(batch), strict=True):
            buffer.copy_(new)
        prepare(capture=False)
        if device == "cuda":
            graph.replay()
        else:
            backend.forward_metadata = captured
            out = step()
        server.check(out, q, k, v, news, decode=True)
        assert (out[4 - padding :] == 0).all()


def test_what_a_layer_must_not_have_is_named(sglang):
    server = Server(sglang, "cpu")
    batch = server.step(ForwardMode.EXTEND, [5, 0, 0])
    q, k, v = server.tokens(batch)
    server.backend.init_forward_metadata(batch)
    run = server.backend.forward
    for name, value, right in (
        ("sliding_window_size", 127, "-1"),
        ("logit_cap", 30.0, "0"),
        ("is_cross_attention", True, "False"),
        ("attn_type", "encoder_only", "decoder"),
        ("use_irope", True, "False"),
        ("xai_temperature_len", 8, "-1"),
        ("pos_encoding_mode", "ALIBI", "NONE"),
        ("head_dim", 96, "64, 128, 256"),
        ("v_head_dim", 128, "64"),
    ):
        message = f"fp8_sdpa.sglang: {name} is {value}; served: {right}$"
        with pytest.raises(NotImplementedError, match=message):
            run(q, k, v, Layer("cpu", **{name: value}), batch)
    for name in ("sinks", "q_rope", "k_descale"):
        with pytest.raises(NotImplementedError, match=f"{name} is not served"):
            run(q, k, v, server.layer, batch, **{name: torch.ones(1)})
    assert run(q, k, v, server.layer, batch, sinks=None).shape == q.shape


def test_what_a_step_must_not_have_is_named(sglang, monkeypatch):
    server = Server(sglang, "cpu")
    backend = server.backend
    backend.init_cuda_graph_state(4, 4)
    batch = server.step(ForwardMode.EXTEND, [5, 0, 0])
    prepares = (backend.init_forward_metadata, backend.init_forward_metadata_out_graph)
    for name in sglang._STEP:
        for mode in (ForwardMode.EXTEND, ForwardMode.DECODE):
            other = types.SimpleNamespace(**{**vars(batch), "forward_mode": mode, name: object()})
            for prepare in prepares:
                with pytest.raises(NotImplementedError, match=f"{name} is not served"):
                    prepare(other)
    for mode in (ForwardMode.TARGET_VERIFY, ForwardMode.DRAFT_EXTEND, ForwardMode.DLLM_EXTEND):
        other = types.SimpleNamespace(**{**vars(batch), "forward_mode": mode})
        for prepare in prepares:
            with pytest.raises(NotImplementedError, match=f"forward_mode is {mode.name}; served: DECODE"):
                prepare(other)
    capture = backend.init_forward_metadata_capture_cuda_graph
    rows, lengths = batch.req_pool_indices, batch.seq_lens
    with pytest.raises(NotImplementedError, match="a CUDA graph of EXTEND is not served"):
        capture(1, 5, rows, lengths, None, ForwardMode.EXTEND, None)
    with pytest.raises(NotImplementedError, match="spec_info is not served"):
        capture(1, 1, rows, lengths, None, ForwardMode.DECODE, object())
    # A graph that leaves attention out may prepare a prompt; one that takes it in must not run it.
    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    monkeypatch.setattr(sglang, "_capturing", lambda _: True)
    with pytest.raises(NotImplementedError, match="a CUDA graph of prompts is not served"):
        backend.forward(*server.tokens(batch), server.layer, batch)
    capture(1, 1, rows, lengths, None, ForwardMode.DECODE, None)
    batch.forward_mode, batch.out_cache_loc = ForwardMode.DECODE, batch.out_cache_loc[:1]
    backend.forward(*server.tokens(batch), server.layer, batch)
    idle = types.SimpleNamespace(forward_mode=ForwardMode.IDLE, batch_size=0)
    backend.init_forward_metadata(idle)
    assert backend.forward_metadata is None


def test_what_a_server_must_not_have_is_named(sglang):
    tables = types.SimpleNamespace(req_to_token=torch.zeros(2, CONTEXT, dtype=torch.int32))

    def make(pool, **other):
        runner = types.SimpleNamespace(token_to_kv_pool=pool, req_to_token_pool=tables, **other)
        return sglang.Backend(runner)

    with pytest.raises(NotImplementedError, match="the pool holds torch.bfloat16; fp8_e4m3 is served"):
        make(Pool("cpu", dtype=torch.bfloat16))
    with pytest.raises(NotImplementedError, match="multi-head latent attention is not served"):
        make(Pool("cpu"), use_mla_backend=True)
    with pytest.raises(NotImplementedError, match="a pool of virtual slots is not served"):
        make(Pool("cpu"), kv_index_translator=types.SimpleNamespace(is_translating=True))
    pool = Pool("cpu")
    pool.is_quantized_kv_cache = True
    with pytest.raises(NotImplementedError, match="a pool with a scale per block is not served"):
        make(pool)
    server = Server(sglang, "cpu", page_size=16)
    batch = server.step(ForwardMode.EXTEND, [5, 0, 0])
    server.backend.init_forward_metadata(batch)
    server.pool.bytes = [x.view(-1, HEADS_KV, 16, DIM) for x in server.pool.bytes]  # SGLang's "hnd"
    with pytest.raises(NotImplementedError, match=r"a pool of shape \(31, 2, 16, 64\) is not served"):
        server.backend.forward(*server.tokens(batch), server.layer, batch)


def test_register(sglang):
    sglang.register()
    sglang.register("other")
    assert sglang.known.choices == ["triton", "fp8_sdpa", "other"]
    assert sglang.known.backends == {"fp8_sdpa": sglang.Backend, "other": sglang.Backend}
