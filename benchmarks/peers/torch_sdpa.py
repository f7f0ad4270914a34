#!/usr/bin/env python3
"""Attention of PyTorch (and FlashAttention-3, where it is installed) as peers.

fp8_sdpa_peers starts this as a second process and alternates with it: one JSON object a line comes
in, one goes out. Requests, by "command":
  hello                            -> {"ok": true, "torch": "2.11.0", "device": "NVIDIA H200"}
  case    sizes, mask, scale, and
          files of E4M3 codes with
          one descale each         -> {"ok": true, "backends": {name: null, or why not}}
  output  backend, file            -> {"ok": true}; the file then holds O's bits in bf16
  time    backend, method, warmup,
          samples                  -> {"ok": true, "samples_us": [...]}
  quit
What goes wrong is {"error": "one line"}. Exit code 0, also where there is no PyTorch or no GPU:
then the answer to hello says so.
"""

import contextlib
import json
import math
import sys

GRAPH_LAUNCHES = 20  # as benchmarks/measure/timer.hpp
FLUSH_TIMES_L2 = 2
MOST_MATH_SCORES = 2**26  # the math backend holds them all in memory


def one_line(error):
    text = " ".join(str(error).split())
    return text[:300] if text else type(error).__name__


class Case:
    """Q, K and V of one problem, and the calls that compute it."""

    def __init__(self, torch, request):
        self.torch = torch
        self.causal = request["mask"] == "causal"
        self.scale = request["scale"]
        batch, heads, heads_kv = request["B"], request["H"], request["H_kv"]
        dim, seq, seq_kv = request["D"], request["S"], request["S_kv"]
        self.bottom_right = self.causal and seq != seq_kv
        sizes = {"q": (batch, heads, seq, dim)}
        sizes["k"] = sizes["v"] = (batch, heads_kv, seq_kv, dim)
        self.codes, self.values, self.descales = {}, {}, {}
        for name, size in sizes.items():
            with open(request[name]["file"], "rb") as file:
                bits = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
            self.codes[name] = bits.reshape(size).cuda().view(torch.float8_e4m3fn)
            descale = request[name]["descale"]
            # Exact: the descale is a power of two.
            self.values[name] = (self.codes[name].float() * descale).to(torch.bfloat16)
            self.descales[name] = torch.full((batch, heads_kv), descale, device="cuda")
        self.grouped = heads != heads_kv
        self.scores = batch * heads * seq * seq_kv
        self.backends = self.make_backends()
        self.graphs = {}

    def make_backends(self):
        backends = {}
        for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
            short = backend.split("_")[0].lower()
            backends["peer/torch_" + short] = self.sdpa(backend)
        backends["peer/flash3_fp8"] = self.flash3(fp8=True)
        backends["peer/flash3_bf16"] = self.flash3(fp8=False)
        return backends

    def sdpa(self, backend):
        @contextlib.contextmanager
        def chosen():
            from torch.nn.attention import SDPBackend, sdpa_kernel

            if self.bottom_right:
                raise RuntimeError("PyTorch aligns a causal mask top-left")
            if backend == "MATH" and self.scores > MOST_MATH_SCORES:
                raise RuntimeError("its scores would take too much memory and time")
            options = {"enable_gqa": True} if self.grouped else {}
            with sdpa_kernel([getattr(SDPBackend, backend)]):
                yield lambda: self.torch.nn.functional.scaled_dot_product_attention(
                    self.values["q"], self.values["k"], self.values["v"], is_causal=self.causal,
                    scale=self.scale, **options)

        return chosen

    def flash3(self, fp8):
        @contextlib.contextmanager
        def chosen():
            from flash_attn_interface import flash_attn_func

            source = self.codes if fp8 else self.values
            # (B,S,H,D) views of the same memory.
            q, k, v = (source[name].transpose(1, 2) for name in "qkv")
            options = {name + "_descale": self.descales[name] for name in "qkv"} if fp8 else {}

            def call():
                out = flash_attn_func(q, k, v, softmax_scale=self.scale, causal=self.causal,
                                      **options)
                return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

            yield call

        return chosen

    @contextlib.contextmanager
    def entered(self, backend):
        """The call of a backend. What chooses it happens here, once, not in every call."""
        with self.torch.no_grad(), self.backends[backend]() as call:
            yield call

    def reasons(self):
        """Of each backend: None, or why it does not serve this problem."""
        found = {}
        for name in self.backends:
            try:
                with self.entered(name) as call:
                    call()
                self.torch.cuda.synchronize()
                found[name] = None
            except Exception as error:  # a backend says no in many ways
                found[name] = one_line(error)
        return found


class Timer:
    """Times calls as benchmarks/measure/timer.hpp times launches."""

    def __init__(self, torch):
        self.torch = torch
        self.start = torch.cuda.Event(enable_timing=True)
        self.stop = torch.cuda.Event(enable_timing=True)
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.flush = torch.empty(FLUSH_TIMES_L2 * l2_bytes, dtype=torch.uint8, device="cuda")

    def capture(self, call):
        stream = self.torch.cuda.Stream()
        with self.torch.cuda.stream(stream):
            call()
        stream.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(GRAPH_LAUNCHES):
                call()
        return graph

    def samples(self, call, method, warmup, count, graphs):
        """`graphs` keeps the captured ones of a case: it is asked for few samples at a time."""
        launches, work = 1, call
        if method == "graph_l2_warm":
            if "graph" not in graphs:
                graphs["graph"] = self.capture(call)
            launches, work = GRAPH_LAUNCHES, graphs["graph"].replay
        for _ in range(math.ceil(warmup / launches)):
            work()
        self.torch.cuda.synchronize()
        return [self.sample(work, method) / launches for _ in range(count)]

    def sample(self, work, method):
        if method == "events_l2_cold":
            self.flush.zero_()
            self.torch.cuda.synchronize()
        self.start.record()
        work()
        self.stop.record()
        self.stop.synchronize()
        return self.start.elapsed_time(self.stop) * 1000.0  # us


class Server:
    def __init__(self):
        self.torch = None
        self.case = None
        self.timer = None

    def hello(self, _):
        try:
            import torch
        except ImportError as error:
            return {"error": "no PyTorch for " + sys.executable + ": " + one_line(error)}
        if not torch.cuda.is_available():
            return {"error": "PyTorch " + torch.__version__ + " sees no GPU"}
        self.torch = torch
        self.timer = Timer(torch)
        return {"ok": True, "torch": torch.__version__, "device": torch.cuda.get_device_name(0)}

    def set_case(self, request):
        self.case = None  # its memory goes first
        self.case = Case(self.torch, request)
        return {"ok": True, "backends": self.case.reasons()}

    def output(self, request):
        with self.case.entered(request["backend"]) as call:
            out = call().to(self.torch.bfloat16).contiguous()
        out.view(self.torch.int16).cpu().numpy().tofile(request["file"])
        return {"ok": True}

    def time(self, request):
        with self.case.entered(request["backend"]) as call:
            graphs = self.case.graphs.setdefault(request["backend"], {})
            samples = self.timer.samples(call, request["method"], request["warmup"],
                                         request["samples"], graphs)
        return {"ok": True, "samples_us": samples}

    def answer(self, line):
        """The answer to a request, or None to the last one."""
        try:
            request = json.loads(line)
            if request["command"] == "quit":
                return None
            commands = {"hello": self.hello, "case": self.set_case, "output": self.output,
                        "time": self.time}
            return commands[request["command"]](request)
        except Exception as error:  # whatever it is, the other side must hear of it
            return {"error": one_line(repr(error))}


def main():
    # Libraries print to stdout: the answers have it for themselves.
    answers = sys.stdout
    sys.stdout = sys.stderr
    server = Server()
    for line in sys.stdin:
        answer = server.answer(line)
        if answer is None:
            break
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
