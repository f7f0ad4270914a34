"""Tensors without data (torch.compile), CUDA graphs and streams."""

import fp8_sdpa
import pytest
import torch
from conftest import E4M3, E5M2, codes, problem


def test_fakes_have_shapes_types_and_layouts(device):
    q, k, v = problem(device)
    tensors, descales = codes(device)
    ops = torch.ops.fp8_sdpa
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")

    def opcheck(op, args, kwargs=None):
        fp8 = any(x.dtype == E4M3 for x in args)  # PyTorch cannot compare these
        torch.library.opcheck(op, args, kwargs or {}, test_utils=checks[1:] if fp8 else checks)

    transposed = tuple(x.transpose(1, 2).contiguous().transpose(1, 2).half() for x in (q, k, v))
    for op in (ops.attention.default, ops.attention.lse):
        opcheck(op, (q, k, v))
        opcheck(op, (q[..., :40], k[..., :40], v[..., :40]), {"causal": True})
        opcheck(op, transposed)
        opcheck(op, (q[:, :, :0], k, v))
        opcheck(op, tuple(x.float() for x in (q, k, v)))
    for op in (ops.attention_fp8.default, ops.attention_fp8.lse):
        opcheck(op, (*tensors, *descales), {"out_dtype": torch.float16})
        opcheck(op, (*(x[..., :40] for x in tensors), *descales))
    opcheck(ops.attention_fp8.lse, (*tensors, *descales), {"exact": True})
    opcheck(ops.attention.default, (q, k, v), {"blocks": True, "batch_invariant": True})
    opcheck(ops.attention.lse, (q, k, v), {"int8": True, "causal": True})
    opcheck(ops.quantise.default, (q,), {"smooth": True})
    opcheck(ops.quantise.default, (q,), {"block_rows": 64})
    opcheck(ops.quantise.default, (transposed[0], descales[0]), {"dtype": E5M2})


def test_compiles_as_one_graph(device):
    q, k, v = problem(device)

    def block(q, k, v):
        out, lse = fp8_sdpa.attention(q * 2, k, v, causal=True, return_lse=True)
        return out + 1, lse * 2

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    for got, want in zip(compiled(q, k, v), block(q, k, v), strict=True):
        assert torch.equal(got, want)
    with torch.no_grad():
        compiled = torch.compile(fp8_sdpa.sdpa, fullgraph=True, backend="aot_eager")
        got = compiled(q, k, v, is_causal=True, enable_gqa=True)
        assert torch.equal(got, fp8_sdpa.sdpa(q, k, v, is_causal=True, enable_gqa=True))


def test_refusals_and_fallbacks_are_known_while_tracing(device):
    q, k, v = problem(device, heads_kv=4)

    def attend(q, k, v):
        return fp8_sdpa.sdpa(q, k, v, fallback=True)

    wide = torch.randn(1, 2, 20, 300, device=device)
    with torch.no_grad():
        compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
        for x in (wide, q.double()):
            want = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            assert torch.allclose(compiled(x, x, x), want, atol=1e-5)
    for bad, text in (((q, k[..., :32], v), "head_dims"), ((q[0], k, v), "has shape")):
        with pytest.raises(Exception, match=text):
            torch.compile(fp8_sdpa.attention, backend="aot_eager")(*bad)
    meta = torch.empty(q.shape, dtype=q.dtype, device="meta")
    with pytest.raises(ValueError, match="k lies on another device than q"):
        fp8_sdpa.attention(q, meta, v)


def test_ragged_forms_compile_by_inductor_too(device):
    q = problem(device, batch=1, heads=2, seq_q=10)[0].squeeze(0).transpose(0, 1)
    cu = torch.tensor([0, 4, 10], dtype=torch.int32, device=device)

    def attend(q, cu):
        return fp8_sdpa.attention_varlen(q, q, q, cu, cu, 6, 6)

    for backend in ("aot_eager", "inductor"):
        assert torch.equal(torch.compile(attend, backend=backend)(q, cu), attend(q, cu)), backend


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_replayed_graph_sees_new_inputs():
    q, k, v = problem("cuda", seq_q=1000, seq_kv=1000)
    fp8_sdpa.attention(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fp8_sdpa.attention(q, k, v, causal=True)
    for x in (q, k, v):
        x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(out, fp8_sdpa.attention(q, k, v, causal=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_runs_on_the_current_stream():
    q, k, v = problem("cuda", seq_q=4000, seq_kv=4000)
    want = fp8_sdpa.attention(q, k, v)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        out = fp8_sdpa.attention(q.clone(), k.clone(), v.clone())
        assert not stream.query(), "it waited"
    stream.synchronize()
    assert torch.equal(out, want)
