"""Text from language models: `Generator(model)` compiles a decoder once and generates tokens with a cache of fixed
capacity.

In: an ONNX file (GroupQueryAttention as onnxruntime-genai writes it, Attention with past and present, TensorScatter) or
a Hugging Face folder. Out: tokens, one at a time, and text where there is a tokenizer. Invariant: one compile, whatever
the lengths and the number of prompts side by side; a token is written to the caches where they lie.
"""

from __future__ import annotations

from armillary.generate.generator import Generator as Generator
from armillary.generate.sampling import Sampling as Sampling
