"""fp8_sdpa.explain(): what runs, and why; what is remembered of it."""

import concurrent.futures
import re

import fp8_sdpa
import pytest
import torch
from conftest import E4M3, E5M2, problem


def test_explain_says_what_runs(device):
    q, k, v = problem(device, seq_q=2048, seq_kv=2048, heads_kv=4)
    lines = fp8_sdpa.explain(q, k, v, granularity="head").splitlines()
    assert lines[0].split(":")[0].startswith("sm")
    assert ("host executor" in lines[1]) == (device == "cpu")
    assert any(line.startswith("multiplies on: FP8 tensor cores") for line in lines)
    assert lines[-2].startswith("before it: Q, K and V are quantised to E4M3")
    fp8 = fp8_sdpa.explain(*(x.to(E4M3) for x in (q, k, v))).splitlines()
    assert fp8 == lines[:-2]
    assert fp8_sdpa.explain(q, k, v, granularity="head", causal=True).splitlines() != lines
    of_lse = {"granularity": "head", "return_lse": True}
    assert fp8_sdpa.explain(q, k, v, **of_lse).splitlines() == lines
    assert fp8_sdpa.explain(q, k, v, **of_lse, exact_lse=True).splitlines() != lines
    with pytest.raises(ValueError, match="different lengths"):
        fp8_sdpa.explain(q, k, v[:, :, :9])


def expected(text):
    """The last error that explain() says, as a part of O."""
    return float(re.findall(r"^error to expect.*: ([0-9.e-]+) % of O", text, re.MULTILINE)[-1]) / 100


def exact(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, k, v)))


def error(out, right):
    return float((out.double() - right).norm() / right.norm())


@pytest.mark.parametrize("options", [{}, {"granularity": "head"}, {"precision": "int8"}])
def test_explain_says_the_error_of_normal_tensors(device, options):
    q, k, v = problem(device, heads=2, heads_kv=2, seq_q=256, seq_kv=1024)
    out = fp8_sdpa.attention(q, k, v, **options)
    says = expected(fp8_sdpa.explain(q, k, v, **options))
    assert 0.8 < error(out, exact(q, k, v)) / says < 1.2


@pytest.mark.parametrize("seq_kv", [128, 1024])
def test_explain_says_the_error_of_codes(device, seq_kv):
    q, k, v = (x.to(E4M3) for x in problem(device, heads=2, heads_kv=2, seq_q=256, seq_kv=seq_kv))
    out = fp8_sdpa.attention_fp8(q, k, v)
    says = expected(fp8_sdpa.explain(q, k, v))
    assert 0.8 < error(out, exact(q, k, v)) / says < 1.2


def test_choices_are_remembered_for_what_they_depend_on(device):
    """Each thread has a memory of its own: what one says after other problems, another says at once."""
    sizes = {"batch": 1, "heads": 8, "heads_kv": 8, "seq_q": 512, "seq_kv": 512, "head_dim": 64}
    others = [
        {"batch": 40},
        {"heads": 64},
        {"heads_kv": 2},
        {"seq_q": 16},
        {"seq_kv": 8192},
        {"head_dim": 256},
    ]
    cases = [(sizes | other, {}) for other in ({}, *others)]
    cases += [(sizes | {"seq_q": 1, "seq_kv": 8192}, {}), (sizes, {"granularity": "block"})]
    cases += [(sizes | {"seq_kv": 8192}, o) for o in ({"causal": True}, {"batch_invariant": True})]
    cases += [
        (sizes | {"seq_q": 8192, "seq_kv": 8192}, o) for o in ({}, {"return_lse": True, "exact_lse": True})
    ]

    def said(case):
        q, k, v = (x.to(E4M3) for x in problem(device, **case[0]))
        return fp8_sdpa.explain(q, k, v, **case[1])

    def said_in_a_thread(case):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(said, case).result()

    fresh = [said_in_a_thread(case) for case in cases]
    assert len({text.split(":")[0] for text in fresh}) >= 5
    for _ in range(2):
        assert [said(case) for case in cases] == fresh


def test_explain_of_codes_takes_the_options_too(device):
    sizes = {"heads": 16, "heads_kv": 16, "seq_q": 600, "seq_kv": 600}  # of a kernel that rounds
    of = [x.to(E4M3) for x in problem(device, **sizes)]
    plain = fp8_sdpa.explain(*of)
    assert fp8_sdpa.explain(*of, causal=True) != plain
    assert fp8_sdpa.explain(*of, return_lse=True, exact_lse=True) != plain
    assert fp8_sdpa.explain(*of, return_lse=True) == plain
    assert fp8_sdpa.explain(*of, batch_invariant=True) != plain
    if device == "cpu":
        e5m2 = [x.to(E5M2) for x in problem(device, heads_kv=4)]
        assert fp8_sdpa.explain(*e5m2).startswith("sm80_mma")
