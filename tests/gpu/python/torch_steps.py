"""PyTorch under the library. usage: torch_steps.py steps | compile | oom | profiler | generate

steps: 200 training steps of a small network with a convolution and attention; a checksum of every parameter, the time of a
step. compile: torch.compile with graphs. oom: out of memory, again and again. profiler: kernels that it sees. generate:
greedy words of a small random language model of the transformers package.
"""
import os
import statistics as numbers
import sys
import time
import zlib

from rows import IS_REHEARSAL, IS_SHORT, need, need_torch, row, skip

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
torch = need_torch()
WORDS, WIDTH, HEADS = 16, 64, 4  # of the attention


class Network(torch.nn.Module):
    """A convolution over 16 x 16 values, attention over 16 words of 64 values, and linear layers."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.ask, self.answer = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WORDS * WIDTH)
        self.layers = torch.nn.Sequential(torch.nn.Linear(WORDS * WIDTH, 512), torch.nn.GELU(), torch.nn.Linear(512, 64))

    def attend(self, words):
        """By products and a softmax, whose gradients are deterministic."""
        queries, keys, values = (part.reshape(-1, WORDS, HEADS, WIDTH // HEADS).transpose(1, 2)
                                 for part in self.ask(words).chunk(3, dim=-1))
        weights = (queries @ keys.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5).softmax(-1)
        return self.answer((weights @ values).transpose(1, 2).reshape(-1, WORDS, WIDTH))

    def forward(self, data):
        words = torch.nn.functional.gelu(self.convolution(data.reshape(-1, 1, 16, 16))).reshape(-1, WORDS, WIDTH)
        return self.layers(self.norm((words + self.attend(words)).reshape(-1, WORDS * WIDTH)))


def network():
    torch.manual_seed(7)
    return Network().cuda()


def checksum(tensors):
    total = 0
    for tensor in tensors:
        total = zlib.crc32(tensor.detach().float().cpu().numpy().tobytes(), total)
    return total


def train(model, steps, seed=11):
    """The time of each step; the batch has another size in each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    times = []
    for step in range(steps):
        batch = torch.randn(64 + 16 * (step * 7 % 13), 256, generator=generator)
        torch.cuda.synchronize()
        start = time.perf_counter()
        data = batch.cuda(non_blocking=True)
        out = model(data)
        loss = (out * out).mean() + out.softmax(-1).std()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times


def steps():
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    model = network()
    times = train(model, 10 if IS_SHORT else 200)
    row("checksum", checksum(model.parameters()), "crc32")
    row("step.median", numbers.median(times) * 1e3, "ms")
    row("step.p99", sorted(times)[int(len(times) * 0.99)] * 1e3, "ms")


def compiled():
    model = network()
    data = torch.randn(128, 256, device="cuda")
    with torch.no_grad():
        want = model(data)
        fast = torch.compile(model, mode="reduce-overhead")
        start = time.perf_counter()
        for _ in range(5):
            got = fast(data)
        difference = (got - want).abs().max().item()
        row("compile", time.perf_counter() - start, "s")
    optimizer = torch.optim.SGD(fast.parameters(), lr=1e-3)
    for _ in range(3 if IS_SHORT else 20):
        optimizer.zero_grad()
        fast(data).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    finite = torch.stack([p.isfinite().all() for p in model.parameters()]).all().item()
    if IS_REHEARSAL:
        skip("difference", "the simulated device's kernels compute nothing")
        skip("finite", "the simulated device's kernels compute nothing")
    else:
        row("difference", difference, "units")
        row("finite", finite, "yes")


def out_of_memory():
    whole = torch.cuda.mem_get_info()[0]
    failures, held_after = 0, 0
    for _ in range(3):
        held = []
        try:
            while True:
                held.append(torch.empty(whole // 16, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            failures += 1
        held_after = len(held)
        held.clear()
        torch.cuda.empty_cache()
    row("failures", failures, "errors")
    row("held", held_after, "sixteenths")
    large = torch.empty(whole // 2, dtype=torch.uint8, device="cuda")
    row("half_fits", large.numel() == whole // 2, "yes")


def profiled():
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    model = network()
    train(model, 2)
    with torch.profiler.profile(activities=activities) as profile:
        train(model, 3)
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    if IS_REHEARSAL and not events:
        skip("kernels", "the stand-in of CUPTI sees none")
    else:
        row("kernels", len(events), "events")


def generate():
    transformers = need("transformers", "generate.*")
    torch.manual_seed(5)
    config = transformers.GPT2Config(n_layer=4, n_head=4, n_embd=128, vocab_size=1000, n_positions=256)
    model = transformers.GPT2LMHeadModel(config).cuda().eval()
    words = torch.arange(10, device="cuda").reshape(1, 10)
    with torch.no_grad():
        out = model.generate(words, max_new_tokens=16 if IS_SHORT else 64, do_sample=False, pad_token_id=0)
    row("generate.words", out.shape[1], "words")
    row("generate.checksum", zlib.crc32(out.cpu().numpy().tobytes()), "crc32")


{"steps": steps, "compile": compiled, "oom": out_of_memory, "profiler": profiled, "generate": generate}[sys.argv[1]]()
