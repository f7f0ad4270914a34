"""fp8_sdpa.attention() and attention_fp8(): right answers, layouts, refusals."""

import contextlib
import itertools
import pathlib

import fp8_sdpa
import pytest
import torch
from conftest import (
    BF16,
    E4M3,
    E5M2,
    UNQUANTISED,
    WEIGHTS,
    codes,
    dequantised,
    exact,
    normal,
    problem,
    relative,
)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128, 256, 40, 96])
def test_attention_fp8_is_attention_of_the_dequantised(device, head_dim, causal):
    tensors, descales = codes(device, head_dim=head_dim)
    out, lse = fp8_sdpa.attention_fp8(*tensors, *descales, causal=causal, return_lse=True)
    want, want_lse = exact(*dequantised(tensors, descales), causal=causal)
    assert out.shape == want.shape and out.dtype == BF16 and out.device == tensors[0].device
    assert out.is_contiguous() == (head_dim in (64, 128, 256))  # others are padded
    assert lse.shape == want_lse.shape and lse.dtype == torch.float32 and lse.is_contiguous()
    for b, h in itertools.product(range(2), range(4)):  # each head has its own descales
        assert relative(out[b, h], want[b, h]) < WEIGHTS
    assert (lse.cpu() - want_lse).abs().max() < 0.1
    alone = fp8_sdpa.attention_fp8(*tensors, *descales, causal=causal)
    assert torch.equal(alone, out)


def test_the_exact_lse_is_exact(device):
    sizes = {"heads": 16, "heads_kv": 16, "seq_q": 600, "seq_kv": 600}  # of a kernel that rounds
    tensors, descales = codes(device, **sizes)
    _, lse = fp8_sdpa.attention_fp8(*tensors, *descales, return_lse=True, exact_lse=True)
    _, want = exact(*dequantised(tensors, descales))
    assert (lse.cpu() - want).abs().max() < 2e-3
    _, rounded = fp8_sdpa.attention_fp8(*tensors, *descales, return_lse=True)
    assert not torch.equal(lse, rounded)
    q, k, v = problem(device, **sizes)
    _, lse = fp8_sdpa.attention(q, k, v, return_lse=True, exact_lse=True)
    _, rounded = fp8_sdpa.attention(q, k, v, return_lse=True)
    assert not torch.equal(lse, rounded)


@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float32])
@pytest.mark.parametrize("head_dim", [64, 128, 256, 40])
def test_int8_is_several_times_more_exact(device, head_dim, dtype):
    q, k, v = problem(device, head_dim=head_dim, dtype=dtype, seq_kv=300)
    k = k + 2 * torch.arange(head_dim, device=device).remainder(3).to(dtype)
    scale = 0.9 * head_dim**-0.5
    options = {"causal": head_dim == 128, "scale": scale}
    want, want_lse = exact(q, k, v, **options)
    out, lse = fp8_sdpa.attention(q, k, v, return_lse=True, precision="int8", **options)
    assert out.shape == q.shape and out.dtype == (dtype if dtype == torch.float16 else BF16)
    fp8 = fp8_sdpa.attention(q, k, v, **options)
    assert relative(out, want) < min(0.4 * relative(fp8, want), 0.02)
    assert (lse.cpu() - want_lse).abs().max() < 0.1
    for changed in ({"granularity": "block"}, {"batch_invariant": True}, {"granularity": "head"}):
        again = fp8_sdpa.attention(q, k, v, precision="int8", **options, **changed)
        assert relative(again, out.float()) < 2e-3
    assert torch.equal(fp8_sdpa.attention(q, k, v, **options), fp8)  # another plan
    drop_in = fp8_sdpa.sdpa(q, k, v, scale=scale, enable_gqa=True, precision="int8")
    assert drop_in.dtype == dtype and relative(drop_in, exact(q, k, v, scale=scale)[0]) < 0.02
    text = fp8_sdpa.explain(q, k, v, precision="int8")
    assert text.startswith("sm90_int8_") and "8-bit integer tensor cores" in text and "V is as it is" in text


def test_the_scale_is_the_callers(device):
    tensors, descales = codes(device)
    by_default = fp8_sdpa.attention_fp8(*tensors, *descales)
    assert torch.equal(by_default, fp8_sdpa.attention_fp8(*tensors, *descales, scale=64**-0.5))
    want, _ = exact(*dequantised(tensors, descales), scale=0.03)
    assert relative(fp8_sdpa.attention_fp8(*tensors, *descales, scale=0.03), want) < WEIGHTS
    q, k, v = problem(device)
    want, _ = exact(q, k, v, scale=0.03)
    assert relative(fp8_sdpa.attention(q, k, v, scale=0.03), want) < UNQUANTISED


def test_descales_broadcast(device):
    tensors, _ = codes(device)
    d = torch.rand(4, device=device) + 0.5
    whole = d.expand(2, 4).contiguous()
    kv = torch.full((2, 2), 0.7, device=device)
    one = torch.ones(2, 2, device=device)
    want = fp8_sdpa.attention_fp8(*tensors, whole, kv, one)
    assert torch.equal(fp8_sdpa.attention_fp8(*tensors, d, 0.7), want)
    assert torch.equal(fp8_sdpa.attention_fp8(*tensors, q_descale=d, k_descale=0.7, v_descale=1.0), want)
    other = fp8_sdpa.attention_fp8(*tensors, None, kv, one)
    assert torch.equal(other, fp8_sdpa.attention_fp8(*tensors, torch.ones(2, 4, device=device), kv, one))
    by_heads = whole.T.contiguous().T
    assert torch.equal(fp8_sdpa.attention_fp8(*tensors, by_heads, kv), want)


@pytest.mark.parametrize("out_dtype", [BF16, torch.float16])
def test_out_dtype(device, out_dtype):
    tensors, descales = codes(device)
    out = fp8_sdpa.attention_fp8(*tensors, *descales, out_dtype=out_dtype)
    want, _ = exact(*dequantised(tensors, descales))
    assert out.dtype == out_dtype
    assert relative(out, want) < WEIGHTS


def test_e5m2_is_served_or_declined(device):
    tensors, descales = codes(device, dtype=E5M2, heads_kv=4)
    try:
        out = fp8_sdpa.attention_fp8(*tensors, *descales)
    except NotImplementedError as error:
        assert "e5m2" in str(error)
        return
    want, _ = exact(*dequantised(tensors, descales))
    assert relative(out, want) < 2 * WEIGHTS


@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float32])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "rotate, smooth, seed", [(True, True, 0), (True, False, 7), (False, True, 0), (False, False, 0)]
)
def test_attention_is_quantise_and_attention_fp8(device, dtype, causal, rotate, smooth, seed):
    q, k, v = problem(device, dtype=dtype)
    k += 3 * normal(1, 1, 1, 64, device=device, dtype=dtype)
    out, lse = fp8_sdpa.attention(
        q, k, v, causal=causal, rotate=rotate, smooth=smooth, seed=seed, return_lse=True, granularity="head"
    )
    of_q = fp8_sdpa.quantise(q, rotate=rotate, seed=seed)
    of_k = fp8_sdpa.quantise(k, rotate=rotate, seed=seed, smooth=smooth)
    of_v = fp8_sdpa.quantise(v)
    parts, parts_lse = fp8_sdpa.attention_fp8(
        of_q.codes, of_k.codes, of_v.codes, of_q.descale, of_k.descale, of_v.descale,
        causal=causal, out_dtype=out.dtype, return_lse=True,
    )  # fmt: skip
    assert out.dtype == (torch.float16 if dtype == torch.float16 else BF16)
    assert torch.equal(out, parts)
    want, want_lse = exact(q, k, v, causal=causal)
    assert (lse.cpu() - want_lse).abs().max() < (0.3 if smooth else 0.6)
    if smooth:
        assert relative(out, want) < UNQUANTISED
        assert of_k.mean.shape == (2, 2, 64)
        if not rotate:
            assert (of_k.mean.cpu() - k.float().mean(2).cpu()).abs().max() < 1e-5
    else:
        assert of_k.mean is None
        assert torch.equal(lse, parts_lse)


def test_batch_invariant_rows(device):
    q, k, v = problem(device, batch=3, seq_q=200, seq_kv=300)
    whole = fp8_sdpa.attention(q, k, v, causal=True, batch_invariant=True)
    of = [fp8_sdpa.quantise(x) for x in (q, k, v)]
    fp8 = fp8_sdpa.attention_fp8(
        *(x.codes for x in of), *(x.descale for x in of), causal=True, batch_invariant=True
    )
    for b in range(3):
        one = slice(b, b + 1)
        alone = fp8_sdpa.attention(q[one], k[one], v[one], causal=True, batch_invariant=True)
        assert torch.equal(alone, whole[one])
        alone = fp8_sdpa.attention_fp8(
            *(x.codes[one] for x in of), *(x.descale[one] for x in of), causal=True, batch_invariant=True
        )
        assert torch.equal(alone, fp8[one])


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_a_part_of_the_rows_has_the_bits_of_the_whole(device, head_dim):
    seq = 700
    tensors, descales = codes(device, batch=1, heads=2, seq_q=seq, seq_kv=seq, head_dim=head_dim)
    q, k, v = tensors
    options = {"causal": True, "return_lse": True, "batch_invariant": True}
    whole, whole_lse = fp8_sdpa.attention_fp8(q, k, v, *descales, **options)
    for begin, end in ((0, 144), (144, 400), (400, 401), (400, seq)):
        part, lse = fp8_sdpa.attention_fp8(
            q[:, :, begin:end], k[:, :, :end], v[:, :, :end], *descales, **options
        )
        assert torch.equal(part, whole[:, :, begin:end])
        assert torch.equal(lse, whole_lse[:, :, begin:end])


# --- layouts ----------------------------------------------------------------------------------------


def test_layout_in_layout_out(device):
    q, k, v = problem(device)
    want = fp8_sdpa.attention(q, k, v)
    assert want.is_contiguous()
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    for tensors, like_q in (((q, *swapped[1:]), True), ((swapped[0], k, v), False), (swapped, False)):
        out = fp8_sdpa.attention(*tensors)
        assert torch.equal(out, want)
        assert (out if like_q else out.transpose(1, 2)).is_contiguous()
    of = fp8_sdpa.quantise(swapped[0])
    assert of.codes.transpose(1, 2).is_contiguous()
    assert torch.equal(of.codes.view(torch.uint8), fp8_sdpa.quantise(q).codes.view(torch.uint8))


def test_any_strides_are_read(device):
    q, k, v = problem(device)
    want = fp8_sdpa.attention(q, k, v)

    def offset(x, by=1):  # no address of a kernel's
        return x.new_empty(x.numel() + by)[by:].view(x.shape).copy_(x)

    def odd(x, by=1):  # rows 65 elements apart
        return torch.cat((x, x[..., :by]), dim=3)[..., :64]

    def offset_of_8_bytes(x):
        return offset(x, 4)

    def odd_by_8_bytes(x):
        return odd(x, 4)

    def dims_apart(x):
        return x.transpose(2, 3).contiguous().transpose(2, 3)

    def batches_apart(x):  # by an odd number of elements
        return torch.cat((x.flatten(1), x.flatten(1)[:, :1]), dim=1)[:, :-1].view(x.shape)

    def heads_apart(x):
        return torch.cat((x.flatten(2), x.flatten(2)[..., :1]), dim=2)[..., :-1].view(x.shape)

    for other in (offset, odd, offset_of_8_bytes, odd_by_8_bytes, dims_apart, batches_apart, heads_apart):
        out = fp8_sdpa.attention(other(q), other(k), other(v))
        assert torch.equal(out, want), other.__name__
    shared = [x[:1, :, :1].expand(2, -1, x.shape[2], -1) for x in (q, k, v)]
    out = fp8_sdpa.attention(*shared)
    assert torch.equal(out, fp8_sdpa.attention(*(x.contiguous() for x in shared)))
    of = [x.to(E4M3)[:, :, :1].expand(-1, -1, x.shape[2], -1) for x in (q, k, v)]
    out = fp8_sdpa.attention_fp8(*of, causal=True)
    assert torch.equal(out, fp8_sdpa.attention_fp8(*(x.contiguous() for x in of), causal=True))


@pytest.mark.parametrize("head_dim, served", [(8, 64), (40, 64), (80, 128), (96, 128), (200, 256)])
def test_other_head_dims_are_padded(device, head_dim, served):
    q, k, v = problem(device, head_dim=head_dim)
    out, lse = fp8_sdpa.attention(q, k, v, return_lse=True)
    want, want_lse = exact(q, k, v)
    assert out.shape == want.shape
    assert relative(out, want) < UNQUANTISED
    assert (lse.cpu() - want_lse).abs().max() < 0.4
    said = f"head_dim {head_dim} is padded with zeros to {served}"
    assert said in fp8_sdpa.explain(q, k, v)
    assert said in fp8_sdpa.explain(*(x.to(E4M3) for x in (q, k, v)))


def test_nothing_to_attend_to(device):
    q, k, v = problem(device)
    no_keys = [x[:, :, :0] for x in (k, v)]
    descale = torch.ones(2, 4, device=device)
    for out, lse in (
        fp8_sdpa.attention(q, *no_keys, return_lse=True),
        fp8_sdpa.attention_fp8(q.to(E4M3), *(x.to(E4M3) for x in no_keys), descale, return_lse=True),
    ):
        assert out.shape == q.shape and (out == 0).all()
        assert lse.shape == q.shape[:3] and (lse == -torch.inf).all()
    no_rows = fp8_sdpa.attention(q[:, :, :0], k, v)
    assert no_rows.shape == (2, 4, 0, 64) and no_rows.stride() == torch.empty(2, 4, 0, 64).stride()
    assert fp8_sdpa.attention(q[:0], k[:0], v[:0]).shape == (0, 4, 70, 64)
    assert fp8_sdpa.attention_fp8(*(x[:0].to(E4M3) for x in (q, k, v))).shape == (0, 4, 70, 64)
    out, lse = fp8_sdpa.attention(q, k[:, :, :30], v[:, :, :30], causal=True, return_lse=True)
    assert (out[:, :, :40] == 0).all() and (lse[:, :, :40] == -torch.inf).all()
    assert (lse[:, :, 40:] > -torch.inf).all()


# --- refusals ---------------------------------------------------------------------------------------


def test_refusals_name_what_is_wrong(device):
    q, k, v = problem(device)
    of = [x.to(E4M3) for x in (q, k, v)]
    bad_descale = torch.ones(2, 3, device=device)
    one = torch.ones(2, 4, device=device)
    wide = normal(1, 1, 4, 300, device=device)
    attention, attention_fp8, quantise = fp8_sdpa.attention, fp8_sdpa.attention_fp8, fp8_sdpa.quantise
    invalid = [
        ("q has shape (4, 70, 64)", lambda: attention(q[0], k, v)),
        ("k has shape (2, 150, 64)", lambda: attention(q, k[0], v)),
        ("v has shape (2, 150, 64)", lambda: attention(q, k, v[0])),
        ("x has shape (4, 70, 64)", lambda: quantise(q[0])),
        ("k and q have different batches, 1 and 2", lambda: attention(q, k[:1], v)),
        ("v and q have different batches, 1 and 2", lambda: attention(q, k, v[:1])),
        ("v and k have different numbers of heads, 1 and 2", lambda: attention(q, k, v[:, :1])),
        ("v and k have different lengths, 9 and 150", lambda: attention(q, k, v[:, :, :9])),
        ("k and q have different head_dims, 32 and 64", lambda: attention(q, k[..., :32], v)),
        ("v and q have different head_dims, 32 and 64", lambda: attention(q, k, v[..., :32])),
        ("head_dim is 0", lambda: attention(q[..., :0], k[..., :0], v[..., :0])),
        ("head_dim is 300", lambda: attention_fp8(*(wide.to(E4M3) for _ in range(3)))),
        ("heads_q is 3", lambda: attention(q[:, :3], k, v)),
        ("scale is 0", lambda: attention(q, k, v, scale=0.0)),
        ("scale is -1", lambda: attention(q, k, v, scale=-1.0)),
        ("scale is nan", lambda: attention_fp8(*of, scale=float("nan"))),
        ("inf", lambda: attention_fp8(*of, scale=float("inf"))),
        ("q_descale must be float32", lambda: attention_fp8(*of, bad_descale.double())),
        (
            "out_dtype must be torch.bfloat16, torch.float16 or torch.float8_e4m3fn",
            lambda: attention_fp8(*of, out_dtype=torch.float32),
        ),
        ("out_dtype is torch.float8_e4m3fn; it needs out_scale", lambda: attention_fp8(*of, out_dtype=E4M3)),
        ("out_scale is given; only out_dtype torch.float8_e4m3fn", lambda: attention_fp8(*of, out_scale=2.0)),
        (
            "out_scale must be float32",
            lambda: attention_fp8(*of, out_dtype=E4M3, out_scale=bad_descale.double()),
        ),
        ("dtype must be torch.float8_e4m3fn or", lambda: quantise(q, dtype=BF16)),
        ("it must be 'auto', 'head' or 'block'", lambda: attention(q, k, v, granularity="row")),
        ("it must be 'fp8' or 'int8'", lambda: attention(q, k, v, precision="int4")),
        ("block_rows is 3; it must be 0, 64 (of q) or 128", lambda: quantise(q, block_rows=3)),
        ("block_rows is -64; it must be 0", lambda: quantise(q, block_rows=-64)),
        (
            "does not broadcast to (2, 4, 2)",
            lambda: quantise(q, one[..., None].expand(2, 4, 3), block_rows=64),
        ),
        ("q", lambda: attention(*of)),
        ("q", lambda: attention_fp8(q, k, v)),
    ]
    unsupported = [
        ("head_dim is 300", lambda: attention(wide, wide, wide)),
        ("is none of float8_e4m3fn", lambda: attention(*(x.double() for x in (q, k, v)))),
        ("below 2^31", lambda: attention(*(x[:1, :1, :8].expand(2**32 + 1, 1, 8, 64) for x in (q, k, v)))),
    ]
    for kind, cases in ((ValueError, invalid), (NotImplementedError, unsupported)):
        for text, call in cases:
            with pytest.raises(kind) as raised:
                call()
            assert text in str(raised.value)
    raw = torch.ops.fp8_sdpa.attention_fp8
    with pytest.raises(RuntimeError, match="q_descale must be float32"):
        raw(*of, one.double(), one[:, :2], one[:, :2])


def test_descales_of_any_shape_broadcast_or_are_refused(device):
    tensors, _ = codes(device)
    heads = [x.shape[1] for x in tensors]
    for shape in ((2, 1), (1, 0), (2, 0), (0,), (1,), (), (1, 1)):  # 0: all heads
        given = [torch.rand([n or h for n in shape], device=device) + 0.5 for h in heads]
        whole = [x.expand(2, h).contiguous() for x, h in zip(given, heads, strict=True)]
        other = [x.T.contiguous().T for x in whole]
        expected = fp8_sdpa.attention_fp8(*tensors, *whole)
        for descales in (given, other):
            assert torch.equal(fp8_sdpa.attention_fp8(*tensors, *descales), expected)
    for wrong in ((2, 3), (3, 4), (2,), (1, 1, 2, 4), (2, 4, 3)):  # 70 queries: two blocks of 64
        whole = r"\(2, 4, 2\)" if len(wrong) == 3 else r"\(2, 4\)"
        with pytest.raises(ValueError, match=rf"q_descale has shape .*does not broadcast to {whole}"):
            fp8_sdpa.attention_fp8(*tensors, torch.ones(wrong, device=device))
    of_blocks = torch.ones(2, 4, 2, device=device)
    with pytest.raises(ValueError, match=r"v_descale has shape \(2, 2\); where one has .* all three do"):
        fp8_sdpa.attention_fp8(*tensors, of_blocks, 1.0, torch.ones(2, 2, device=device))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_tensors_lie_together():
    q, k, v = problem("cuda")
    for name, tensors in (("k", (q, k.cpu(), v)), ("v", (q, k, v.cpu()))):
        with pytest.raises(Exception, match=f"{name} lies on another device"):
            fp8_sdpa.attention(*tensors)


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_nothing_is_leaked(device):
    q, k, v = (x.to(E4M3) for x in problem(device, batch=1, heads=1, heads_kv=1, seq_q=1, seq_kv=8))
    one = torch.ones(1, 1, device=device)

    def call(times):
        for _ in range(times):
            fp8_sdpa.attention_fp8(q, k, v, one, one, one, return_lse=True)
            with contextlib.suppress(ValueError):
                fp8_sdpa.attention_fp8(q, k, v[:, :, :3], one, one, one)

    call(1000)
    before = resident()
    call(10000)
    assert resident() - before < 4 << 20  # 400 bytes a call


def test_plans_of_many_shapes_are_not_all_kept():
    """Some 5 KB a plan: of 512 at most."""
    one = torch.ones(1, 1)
    codes = torch.zeros(1, 1, 128, 64).to(E4M3)

    def call(numbers):
        for n in numbers:
            keys = codes[:, :, : n % 128 + 1]
            fp8_sdpa.attention_fp8(codes[:, :, : n // 128 + 1], keys, keys, one, one, one)

    call(range(600))
    before = resident()
    call(range(600, 2600))
    assert resident() - before < 6 << 20
