"""fp8_sdpa.attention_varlen_fp8(): packed, padded and paged sequences."""

import itertools

import fp8_sdpa
import pytest
import torch
from conftest import BF16, E4M3, KEYS, QUERIES, WEIGHTS, exact, normal, offsets, ragged, relative, words

varlen = fp8_sdpa.attention_varlen_fp8


def batch_of(device, *, heads=4, heads_kv=2, head_dim=64, queries=QUERIES, keys=KEYS):
    """Packed codes and descales by (sequence, head)."""
    q, k, v = (
        normal(sum(lengths), h, head_dim, device=device).to(E4M3)
        for lengths, h in ((queries, heads), (keys, heads_kv), (keys, heads_kv))
    )
    descales = [
        (torch.rand(len(queries), h) * 0.5 + low).to(device)
        for h, low in ((heads, 0.4), (heads_kv, 0.9), (heads_kv, 1.4))
    ]
    return (q, k, v), descales


def paged(tensors, keys, page_size, device):
    """k and v in pages of an order drawn at random; what no sequence has is NaN."""
    counts = [-(-n // page_size) for n in keys]
    order = torch.randperm(sum(counts) + 3).tolist()
    table = torch.full((len(keys), max(counts) + 1), -1, dtype=torch.int32)
    pools = []
    for packed in tensors:
        pool = torch.full((len(order), page_size, *packed.shape[1:]), torch.nan).to(E4M3).view(torch.uint8)
        codes = packed.cpu().view(torch.uint8)
        first = 0
        used = iter(order)
        for n, length in enumerate(keys):
            for column in range(counts[n]):
                page = table[n, column] = next(used)
                rows = codes[first + column * page_size : first + min(length, (column + 1) * page_size)]
                pool[page, : len(rows)] = rows
            first += length
        pools.append(pool.view(E4M3).to(device))
    return pools, table.to(device)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_each_sequence_is_attention_of_its_own(device, head_dim, causal):
    (q, k, v), descales = batch_of(device, head_dim=head_dim)
    out, lse = varlen(q, k, v, *descales, **ragged(device), causal=causal, return_lse=True)
    assert out.shape == q.shape and out.dtype == BF16 and out.is_contiguous()
    assert lse.shape == (4, sum(QUERIES)) and lse.dtype == torch.float32
    rows, columns = (list(itertools.accumulate(lengths, initial=0)) for lengths in (QUERIES, KEYS))
    for n in range(len(QUERIES)):
        own, seen = slice(rows[n], rows[n + 1]), slice(columns[n], columns[n + 1])
        parts = [
            x[where].float() * d[n][:, None]
            for x, where, d in zip((q, k, v), (own, seen, seen), descales, strict=True)
        ]
        want, want_lse = exact(*(x.transpose(0, 1)[None] for x in parts), causal=causal)
        got, got_lse = out[own].transpose(0, 1)[None], lse[:, own][None].cpu()
        if KEYS[n] == 0:
            assert (got == 0).all() and (got_lse == -torch.inf).all()
        elif QUERIES[n] > 0:
            for h in range(4):
                assert relative(got[:, h], want[:, h]) < WEIGHTS * (2 if QUERIES[n] < 9 else 1)
            assert (got_lse - want_lse).abs().max() < 0.1
    assert torch.equal(varlen(q, k, v, *descales, **ragged(device), causal=causal), out)


@pytest.mark.parametrize("page_size", [8, 16, 24, 128])
def test_pages_change_no_bit(device, page_size):
    (q, k, v), descales = batch_of(device)
    options = {"causal": True, "return_lse": True, "batch_invariant": page_size != 24}

    def in_pages(size):
        pools, table = paged((k, v), KEYS, size, device)
        fault = words([0], device)
        out_and_lse = varlen(
            q, *pools, *descales, cu_seqlens_q=offsets(QUERIES, device), max_seqlen_q=max(QUERIES),
            max_seqlen_k=max(KEYS), seqused_k=words(KEYS, device), block_table=table, fault=fault, **options,
        )  # fmt: skip
        assert fault.item() == 0
        return out_and_lse

    got, whole = in_pages(page_size), varlen(q, k, v, *descales, **ragged(device), **options)
    # Pages of 12 and of 24 keys one kernel serves, alone, and not with batch_invariant.
    for one, other in zip(got, in_pages(12) if page_size == 24 else whole, strict=True):
        assert torch.equal(one, other)
    assert relative(got[0], whole[0]) < WEIGHTS
    assert torch.allclose(got[1], whole[1], atol=0.05, rtol=0.05)


def test_padded_keys_and_queries_of_one_length(device):
    """The decode form: (batch, seq_q, heads, dim) on a padded cache, whose rest is not read."""
    keys = (140, 3, 77)
    (q, k, v), descales = batch_of(device, queries=(2, 2, 2), keys=keys)
    cache = [torch.full((3, 200, 2, 64), torch.nan, device=device).to(E4M3) for _ in range(2)]
    for padded, packed in zip(cache, (k, v), strict=True):
        for row, part in zip(padded, packed.view(torch.uint8).split(keys), strict=True):
            row.view(torch.uint8)[: len(part)] = part
    options = {"causal": True, "return_lse": True, "batch_invariant": True}
    out, lse = varlen(
        q.view(3, 2, 4, 64), *cache, *descales, seqused_k=words(keys, device), **options
    )  # fmt: skip
    want, want_lse = varlen(q, k, v, *descales, **ragged(device, (2, 2, 2), keys), **options)
    assert out.shape == (3, 2, 4, 64) and lse.shape == (3, 4, 2)
    assert torch.equal(out.view_as(want), want)
    assert torch.equal(lse.transpose(0, 1).reshape(4, 6), want_lse)
    everything = varlen(q.view(3, 2, 4, 64), *(x.view(torch.uint8).clamp(max=8).view(E4M3) for x in cache))
    assert not everything.isnan().any()


def test_descales_left_out_are_one(device):
    """In each form: packed; packed queries on pages; queries of one length on packed keys."""
    queries, keys = (2, 2, 2), (140, 3, 77)
    (q, k, v), _ = batch_of(device, queries=queries, keys=keys)
    pools, table = paged((k, v), keys, 16, device)
    of_q = {"cu_seqlens_q": offsets(queries, device), "max_seqlen_q": 2}
    of_k = {"cu_seqlens_k": offsets(keys, device), "max_seqlen_k": 140}
    of_pages = {"seqused_k": words(keys, device), "block_table": table}
    ones = [torch.ones(3, h, device=device) for h in (4, 2, 2)]
    for tensors, lengths in (
        ((q, k, v), of_q | of_k),
        ((q, *pools), of_q | of_pages),
        ((q.view(3, 2, 4, 64), k, v), of_k),
    ):
        assert torch.equal(varlen(*tensors, **lengths), varlen(*tensors, *ones, **lengths))
        assert torch.equal(varlen(*tensors, 1.0, 1, None, **lengths), varlen(*tensors, *ones, **lengths))


@pytest.mark.parametrize("which", range(6))
def test_forward_only(device, which):
    """Whichever tensor asks for it, codes and descales."""
    lengths = {"max_seqlen_q": 3, "max_seqlen_k": 9} | {
        f"cu_seqlens_{of}": offsets(n, device) for of, n in (("q", (3, 1)), ("k", (9, 4)))
    }
    tensors, descales = batch_of(device, queries=(3, 1), keys=(9, 4))
    inputs = [*tensors, *descales]
    expected = varlen(*inputs, **lengths)
    inputs[which].requires_grad_()
    for return_lse in (False, True):
        made = varlen(*inputs, **lengths, return_lse=return_lse)
        for one in made if return_lse else (made,):
            with pytest.raises(NotImplementedError, match="fp8_sdpa.attention_varlen_fp8 is forward only"):
                one.sum().backward()
        assert torch.equal(made[0] if return_lse else made, expected)
    with torch.no_grad():
        assert not varlen(*inputs, **lengths).requires_grad


def test_chunks_of_a_prompt_have_the_bits_of_the_whole(device):
    (q, k, v), descales = batch_of(device, queries=(300,), keys=(300,))
    options = {"causal": True, "batch_invariant": True}
    whole = varlen(q, k, v, *descales, **ragged(device, (300,), (300,)), **options)
    for begin, end in ((0, 130), (130, 131), (131, 300)):
        lengths = ragged(device, (end - begin,), (end,)) | {"max_seqlen_k": 300}
        part = varlen(q[begin:end], k[:end], v[:end], *descales, **lengths, **options)
        assert torch.equal(part, whole[begin:end])


def test_of_nothing_nothing_is_made(device):
    (q, k, v), descales = batch_of(device, queries=(0, 0), keys=(20, 30))
    out, lse = varlen(q, k, v, *descales, **ragged(device, (0, 0), (20, 30)), return_lse=True)
    assert out.shape == (0, 4, 64) and lse.shape == (4, 0)
    spare = q.new_empty(3, 4, 64)  # rows of no sequence
    varlen(spare, k, v, *descales, **ragged(device, (0, 0), (20, 30)))
    (q, k, v), descales = batch_of(device, queries=(3, 2), keys=(0, 0))
    out, lse = varlen(q, k, v, *descales, **ragged(device, (3, 2), (0, 0)), return_lse=True)
    assert (out == 0).all() and (lse == -torch.inf).all()


def test_what_is_none_is_told(device):
    (q, k, v), descales = batch_of(device, queries=(3, 3), keys=(40, 50))
    pools, table = paged((k, v), (40, 50), 16, device)
    lengths = {"cu_seqlens_q": offsets((3, 3), device), "max_seqlen_q": 3}
    lengths |= {"seqused_k": words((40, 50), device), "block_table": table}
    good = varlen(q, *pools, *descales, **lengths)
    fault = words([0], device)
    for page in (-1, len(pools[0]), 10**6):
        table[1, 2] = page
        out = varlen(q, *pools, *descales, **lengths, fault=fault)
        assert fault.item() == 1
        assert torch.equal(out[:3], good[:3]) and out[3:].isnan().all()
        fault.zero_()
        out, lse = varlen(q, *pools, *descales, **lengths, fault=fault, return_lse=True)
        assert fault.item() == 1
        assert out[3:].isnan().all() and lse[:, 3:].isnan().all() and not lse[:, :3].isnan().any()
        fault.zero_()
    lengths["seqused_k"][0] = -1
    out = varlen(q, *pools, *descales, **lengths, fault=fault)
    assert fault.item() == 1 and out.isnan().all()


def test_a_sequence_is_not_longer_than_the_most_nor_than_there_are_rows(device):
    (q, k, v), descales = batch_of(device)
    own = ragged(device)

    def told(**options):
        fault = words([0], device)
        varlen(q, k, v, *descales, **own | options, fault=fault)
        return fault.item() == 1

    assert not told()
    assert told(max_seqlen_q=69) and told(max_seqlen_k=149)
    for name in ("cu_seqlens_q", "cu_seqlens_k"):
        longer = own[name].clone()
        longer[-1] += 1
        assert told(**{name: longer})
    none = varlen(q, k, v, *descales, **own | {"max_seqlen_k": 0})
    assert (none == 0).all()


def test_the_exact_lse_is_exact(device):
    own = ragged(device, (70,), (150,))  # of a kernel that rounds
    (q, k, v), descales = batch_of(device, head_dim=256, queries=(70,), keys=(150,))
    _, lse = varlen(q, k, v, *descales, **own, return_lse=True, exact_lse=True)
    _, rounded = varlen(q, k, v, *descales, **own, return_lse=True)
    assert not torch.equal(lse, rounded)
    parts = (x.float() * d[0][:, None] for x, d in zip((q, k, v), descales, strict=True))
    _, want = exact(*(x.transpose(0, 1)[None] for x in parts))
    assert (lse.cpu() - want[0]).abs().max() < 2e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_tensors_lie_together():
    (q, k, v), descales = batch_of("cuda")
    for name in ("cu_seqlens_q", "cu_seqlens_k"):
        lengths = ragged("cuda")
        with pytest.raises(ValueError, match=f"{name} lies on another device"):
            varlen(q, k, v, *descales, **lengths | {name: lengths[name].cpu()})


def test_refusals_name_what_is_wrong(device):
    (q, k, v), descales = batch_of(device)
    pools, table = paged((k, v), KEYS, 16, device)
    own = ragged(device)
    lengths = {"seqused_k": words(KEYS, device), "block_table": table}
    of_q = {"cu_seqlens_q": own["cu_seqlens_q"], "max_seqlen_q": 70}
    one = torch.ones(5, 1, device=device)

    def call(*tensors, without=(), **options):
        return lambda: varlen(*tensors, *descales, **{n: x for n, x in options.items() if n not in without})

    cases = [
        ("max_seqlen_q is missing", call(q, k, v, **own, without=["max_seqlen_q"])),
        ("max_seqlen_q is -1; it must be 0 or more", call(q, k, v, **own | {"max_seqlen_q": -1})),
        ("max_seqlen_k is -1; it must be 0 or more", call(q, k, v, **own | {"max_seqlen_k": -1})),
        ("k and q have different batches, 1 and 2",
         call(q[:4].view(2, 2, 4, 64), k[:9].view(1, 9, 2, 64), v[:9].view(1, 9, 2, 64))),
        ("max_seqlen_k is missing", call(q, k, v, **own, without=["max_seqlen_k"])),
        ("block_table is given without seqused_k", call(q, *pools, **of_q, block_table=table)),
        ("cu_seqlens_k and block_table are both given", call(q, *pools, **own, **lengths)),
        ("cu_seqlens_k and seqused_k are both", call(q, k, v, **own, seqused_k=lengths["seqused_k"])),
        ("q has shape (1, 109, 4, 64); expected (total_q", call(q[None], k, v, **own)),
        ("k has shape (1, 354, 2, 64); expected (total_k", call(q, k[None], v, **own)),
        ("k has shape (354, 2, 64); expected (pages", call(q, k, v, **of_q, **lengths)),
        ("v and k have different lengths, 353 and 354", call(q, k, v[1:], **own)),
        ("v and k have different numbers of heads, 1 and 2", call(q, k, v[:, :1], **own)),
        ("k and q have different head_dims, 32 and 64", call(q, k[..., :32], v, **own)),
        ("v and q have different head_dims, 32 and 64", call(q, k, v[..., :32], **own)),
        ("cu_seqlens_k must be int32, contiguous, of shape (6)",
         call(q, k, v, **own | {"cu_seqlens_k": own["cu_seqlens_k"][1:]})),
        ("cu_seqlens_q must be int32", call(q, k, v, **own | {"cu_seqlens_q": own["cu_seqlens_q"].long()})),
        ("block_table must be int32, contiguous, of shape (5, 11)",
         call(q, *pools, **of_q, **lengths | {"block_table": table[:4]})),
        ("block_table must be int32, contiguous, of shape (5, 11)",
         call(q, *pools, **of_q, **lengths | {"block_table": table.T.contiguous().T})),
        ("v and k have different sizes of their first axis",
         call(q, pools[0], pools[1][1:], **of_q, **lengths)),
        ("seqused_k must be int32", call(q, *pools, **of_q, **lengths | {"seqused_k": table[0, :4]})),
        ("fault must be int32", call(q, k, v, **own, fault=words([], device))),
        ("innermost stride is 2", call(q.repeat_interleave(2, 2)[..., ::2], k, v, **own)),
        ("out_dtype must be", call(q, k, v, **own, out_dtype=torch.float32)),
        ("it needs out_scale", call(q, k, v, **own, out_dtype=E4M3)),
        ("out_scale must be float32, contiguous, of shape (1)",
         call(q, k, v, **own, out_dtype=E4M3, out_scale=descales[0])),
        ("scale is 0", call(q, k, v, **own, scale=0.0)),
        ("it must be 0 to 2^31 - 1",
         lambda: varlen(q[:, :1].expand(-1, 2**32 + 4, -1), k, v, one, one, one, **own)),
        ("q_descale must be float32", lambda: varlen(q, k, v, descales[0].double(), **own)),
    ]  # fmt: skip
    for text, refused in cases:
        with pytest.raises(ValueError) as raised:
            refused()
        assert text in str(raised.value)


def test_fakes_have_shapes_and_types(device):
    (q, k, v), descales = batch_of(device)
    lengths = [offsets(QUERIES, device), offsets(KEYS, device), 70, 150]
    checks = ("test_faketensor", "test_aot_dispatch_dynamic")
    square = [x[:100].view(5, 20, x.shape[1], 64) for x in (q, k, v)]
    op = torch.ops.fp8_sdpa.attention_varlen_fp8
    for one, options in ((op.default, {"out_dtype": torch.float16}), (op.lse, {"causal": True})):
        torch.library.opcheck(one, (q, k, v, *descales, *lengths), options, test_utils=checks)
        torch.library.opcheck(one, (*square, *descales, None, None, 0, 0), test_utils=checks)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_replayed_graph_sees_new_lengths():
    (q, k, v), descales = batch_of("cuda", queries=(40, 40), keys=(300, 300))
    lengths = ragged("cuda", (40, 40), (300, 300))
    options = {"causal": True, "batch_invariant": True}
    varlen(q, k, v, *descales, **lengths, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = varlen(q, k, v, *descales, **lengths, **options)
    lengths["cu_seqlens_q"].copy_(offsets((9, 31), "cuda"))
    lengths["cu_seqlens_k"].copy_(offsets((100, 200), "cuda"))
    graph.replay()
    assert torch.equal(out[:40], varlen(q, k, v, *descales, **lengths, **options)[:40])
