"""A training step of a transformers model on a GPU of shapes alone: FakeTensorMode with the device "cuda".

The step: gradients are None, the model in train mode computes its own loss over all tokens, then backward. As transformers'
Trainer does, there is no cache of keys and values, and autocast (precision "m") covers forward and loss. Sequences have
no padding, hence no mask. Attention "a" is scaled_dot_product_attention, FlashAttention first, then the memory-efficient
kernel, then plain operations; "e" writes all scores. Checkpoints are non-reentrant. LoRA adapts every linear layer but the
output head, in 32 bits, as peft's "all-linear" and autocast_adapter_dtype do."""

import contextlib
import warnings

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import initialization, masking_utils
from transformers.integrations import moe

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
# With real tensors the mask of unpacked sequences is left out after a look at their positions.
masking_utils.find_packed_sequence_indices = lambda position_ids: None
# The kernel of shapes alone takes 16 bits only; in others the result and what is kept are of the same sizes.
moe._can_use_grouped_mm = lambda input, weight, offs: weight.dtype == torch.bfloat16
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Adapted(torch.nn.Module):
    """A linear layer with an adapter, as peft computes it."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        width = (base.weight.shape[1], base.weight.shape[0])
        if isinstance(base, transformers.pytorch_utils.Conv1D):
            width = width[::-1]
        self.down = torch.nn.Linear(width[0], rank, bias=False, dtype=torch.float32)
        self.up = torch.nn.Linear(rank, width[1], bias=False, dtype=torch.float32)

    @property
    def weight(self):
        return self.base.weight

    @property
    def bias(self):
        return self.base.bias

    def forward(self, x):
        result = self.base(x)
        dtype = result.dtype
        return (result + self.up(self.down(x.to(self.down.weight.dtype))) * 2.0).to(dtype)


def adapt(model, rank):
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    for p in model.parameters():
        p.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in (torch.nn.Linear, transformers.pytorch_utils.Conv1D) and child is not head:
                setattr(parent, name, Adapted(child, rank))


class Step:
    """A model and its step. To be used within `mode`, which belongs to it."""

    def __init__(self, model_class, config, precision="p", attention="a", checkpointing=False, rank=0):
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.precision = precision
        has_kernel = getattr(model_class, "_supports_sdpa", False)
        config._attn_implementation = "sdpa" if attention == "a" and has_kernel else "eager"
        if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = 0
        dtype = torch.bfloat16 if precision == "p" else torch.float32
        for part in (config, config.get_text_config()):
            part.use_cache = False
        torch.set_default_dtype(dtype)
        try:
            with self.mode, torch.device("cuda"), initialization.no_init_weights():
                self.model = model_class._from_config(config, dtype=dtype).train()
                self.model.tie_weights()
                if checkpointing:
                    self.model.gradient_checkpointing_enable()
                if rank:
                    adapt(self.model, rank)
        finally:
            torch.set_default_dtype(torch.float32)
        self.config = config

    def inputs(self, batch, tokens):
        main = getattr(self.model, "main_input_name", "input_ids")
        with self.mode, torch.device("cuda"):
            if main == "pixel_values":
                size = getattr(self.config, "image_size", None) or 224
                size = size if isinstance(size, (list, tuple)) else (size, size)
                shape = (batch, getattr(self.config, "num_channels", None) or 3, size[0], size[-1])
                dtype = next(self.model.parameters()).dtype
                return {"pixel_values": torch.zeros(shape, dtype=dtype), "labels": torch.zeros(batch, dtype=torch.long)}
            ids = torch.zeros((batch, tokens), dtype=torch.long)
            classes = "SequenceClassification" in type(self.model).__name__
            return {"input_ids": ids, "labels": torch.zeros(batch, dtype=torch.long) if classes else ids.clone()}

    def forward(self, inputs):
        cast = torch.autocast("cuda", torch.bfloat16) if self.precision == "m" else contextlib.nullcontext()
        with cast, sdpa_kernel(KERNELS, set_priority=True):
            out = self.model(**inputs)
            return out["loss"] if isinstance(out, dict) else out[0]

    def run(self, inputs):
        loss = self.forward(inputs)
        self.between()
        with sdpa_kernel(KERNELS, set_priority=True):
            loss.backward()

    def between(self):
        """Called after the forward pass."""
