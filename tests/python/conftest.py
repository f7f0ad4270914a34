"""What the tests of the PyTorch operators share: devices, and attention in float64."""

import itertools
import os

import pytest
import torch

DEVICES = ["cpu", "cuda"]


def pytest_runtest_setup(item):
    params = getattr(item, "callspec", None)
    if params and params.params.get("device") == "cuda" and not torch.cuda.is_available():
        if os.environ.get("SDPA_REQUIRE_GPU") == "1":
            pytest.fail("SDPA_REQUIRE_GPU=1, and there is no GPU")
        pytest.skip("no GPU")


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def exact(q, k, v, *, causal=False, scale=None, top_left=False):
    """(O, LSE) in float64; causal is aligned bottom-right unless top_left."""
    q, k, v = (x.detach().cpu().double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        rows, keys = scores.shape[-2:]
        diagonal = 0 if top_left else keys - rows
        seen = torch.ones(rows, keys, dtype=torch.bool).tril(diagonal)
        scores = scores.masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - torch.where(lse.isinf(), 0.0, lse)[..., None])
    return weights @ v, lse


def relative(got, want):
    """Relative L2 distance."""
    want = want.detach().cpu().double()
    return ((got.detach().cpu().double() - want).norm() / want.norm()).item()


# Of E4M3's rounding, 2^-4 at most and 2.6 % in the mean, once for each weight: over the keys of a row it
# averages out. Not more than this on any row of normal inputs.
WEIGHTS = 0.035
# The same with Q, K and V rounded too: three more roundings.
UNQUANTISED = 0.08


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
BF16 = torch.bfloat16


def normal(*shape, device="cpu", dtype=BF16):
    return torch.randn(*shape).to(dtype).to(device)


def problem(device, *, heads=4, heads_kv=2, seq_q=70, seq_kv=150, head_dim=64, batch=2, dtype=BF16):
    q = normal(batch, heads, seq_q, head_dim, device=device, dtype=dtype)
    k = normal(batch, heads_kv, seq_kv, head_dim, device=device, dtype=dtype)
    v = normal(batch, heads_kv, seq_kv, head_dim, device=device, dtype=dtype)
    return q, k, v


def codes(device, dtype=E4M3, **sizes):
    """FP8 codes, and a descale of its own for every head of every tensor."""
    tensors = [x.to(dtype) for x in problem(device, **sizes)]
    descales = [
        (torch.rand(x.shape[:2]) * 0.5 + low).to(device)
        for x, low in zip(tensors, (0.4, 0.9, 1.4), strict=True)
    ]
    return tensors, descales


def dequantised(tensors, descales):
    return [t.float() * d[..., None, None] for t, d in zip(tensors, descales, strict=True)]


# --- sequences that differ in length ---

QUERIES, KEYS = (70, 1, 0, 33, 5), (150, 131, 40, 33, 0)


def words(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


def offsets(lengths, device):
    return words([0, *itertools.accumulate(lengths)], device)


def ragged(device, queries=QUERIES, keys=KEYS):
    return {
        "cu_seqlens_q": offsets(queries, device),
        "cu_seqlens_k": offsets(keys, device),
        "max_seqlen_q": max(queries),
        "max_seqlen_k": max(keys),
    }
