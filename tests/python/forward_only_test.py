"""A gradient through an op is an error that names it; what needs none is untouched."""

import fp8_sdpa
import pytest
import torch
from conftest import codes, problem


def test_forward_only(device):
    q, k, v = problem(device)
    for of in (q, k, v):
        of.requires_grad_()
        out, lse = fp8_sdpa.attention(q, k, v, return_lse=True)
        for made in (out, lse)[: 1 if of is v else 2]:
            with pytest.raises(NotImplementedError, match="fp8_sdpa.attention is forward only"):
                made.sum().backward()
        with torch.no_grad():
            assert not fp8_sdpa.attention(q, k, v).requires_grad
        of.requires_grad_(False)
    assert not fp8_sdpa.attention(q, k, v).requires_grad
    with pytest.raises(NotImplementedError, match="fp8_sdpa.attention is forward only"):
        torch.func.grad(lambda x: fp8_sdpa.attention(x, k, v).float().sum())(q)
    q.requires_grad_()
    out = fp8_sdpa.attention(q, k, v)
    out += 1  # in place, as of any output


@pytest.mark.parametrize("which", range(6))
def test_forward_only_of_codes(device, which):
    """Whichever tensor asks for it, codes and descales."""
    tensors, _ = codes(device)
    inputs = [*tensors, *(torch.ones(2, x.shape[1], device=device) for x in tensors)]
    expected = fp8_sdpa.attention_fp8(*inputs)
    inputs[which].requires_grad_()
    for return_lse in (False, True):
        made = fp8_sdpa.attention_fp8(*inputs, return_lse=return_lse)
        for one in made if return_lse else (made,):
            with pytest.raises(NotImplementedError, match="fp8_sdpa.attention_fp8 is forward only"):
                one.sum().backward()
        assert torch.equal(made[0] if return_lse else made, expected)
    with torch.no_grad():
        assert not fp8_sdpa.attention_fp8(*inputs).requires_grad
    if which >= 3:
        with pytest.raises(NotImplementedError, match="fp8_sdpa.attention_fp8 is forward only"):
            torch.func.grad(lambda x: fp8_sdpa.attention_fp8(*inputs[:which], x, *inputs[which + 1 :]).sum())(
                inputs[which]
            )
