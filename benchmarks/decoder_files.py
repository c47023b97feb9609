"""Decoders by file: steps and prompts against llama.cpp, OpenVINO and ONNX Runtime GenAI, by turns, in own processes.

Run: python benchmarks/decoder_files.py [--encoding Q4_0] [--layers 4] [--threads 1] [--rounds 10] [--prompts 128,1024]
     [--peers PYTHON] [--engines armillary,llama.cpp,openvino] [--bits 16,8] [--clock wall]
     python benchmarks/decoder_files.py --folder DIR --engines armillary,onnxruntime [--peers PYTHON] …

Writes a file of the shape of a Llama of 1.1 billion weights (2048 / 5632, 32 heads, 4 groups; fewer layers for less
time) with random integers, and asks each engine in turn for a token at position 100 and for prompts. Least times of all
rounds; the bytes of the layers and the head a second as a share of what one thread reads by numpy in between. The
peers' packages (`llama-cpp-python`, `openvino-genai`) may belong to another Python. OpenVINO repacks what it reads.
`--folder`: what the builder of onnxruntime-genai wrote (`-p int4 -e cpu`) takes the place of the GGUF file.
On one thread of a machine that other work fills, `--clock processor` counts the processor's time of each process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HIDDEN, INNER, HEADS, GROUPS, WORDS, POSITION, STEPS = 2048, 5632, 32, 4, 32000, 100, 8
SPREAD = {"Q4_0": 4.6, "Q4_K": 4.6 * 32, "Q5_K": 9.2 * 32, "Q8_0": 74.0, "Q6_K": 18.0 * 74}  # integers, inner scales
MIDDLE = {"Q4_K": 7.5, "Q5_K": 15.5}  # of the integers, which minima bring to about 0
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
Timer = Callable[[int], float]  # seconds of a prompt of so many tokens; 0: of one token behind POSITION others


def write(path: Path, encoding: str, layers: int) -> int:
    """The file; gives the bytes that a token reads: all but the embedding."""
    import gguf
    import tokenizers

    from armillary.generate.gguf_blocks import ENCODINGS

    kind, form, rng = gguf.GGMLQuantizationType[encoding], ENCODINGS.get(encoding), np.random.default_rng(0)
    writer, total, wide = gguf.GGUFWriter(path, "llama"), 0, HIDDEN // HEADS * GROUPS
    for add, value in (
        (writer.add_block_count, layers),
        (writer.add_context_length, 4096),
        (writer.add_embedding_length, HIDDEN),
        (writer.add_feed_forward_length, INNER),
        (writer.add_head_count, HEADS),
        (writer.add_head_count_kv, GROUPS),
        (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_rope_freq_base, 10000.0),
        (writer.add_rope_dimension_count, HIDDEN // HEADS),
        (writer.add_file_type, 2),
        (writer.add_tokenizer_model, "gpt2"),
        (writer.add_tokenizer_pre, "llama-bpe"),
        (writer.add_bos_token_id, WORDS - 2),
        (writer.add_eos_token_id, WORDS - 1),
        (writer.add_token_types, [1] * (WORDS - 2) + [3, 3]),
    ):
        add(value)
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    writer.add_token_list([*letters, *(f"t{n}" for n in range(WORDS - 259)), "".join(letters[70:72]), "<s>", "</s>"])
    writer.add_token_merges([f"{letters[70]} {letters[71]}"])

    def matrix(name: str, units: int, depth: int) -> None:
        nonlocal total
        if form is None:
            floats = (rng.standard_normal((units, depth), np.float32) * depth**-0.5).astype(np.float32)
            blocks = (
                floats.astype(np.float16) if encoding == "F16" else (floats.view(np.uint32) >> 16).astype(np.uint16)
            )
            total += blocks.nbytes if "embd" not in name else 0
            writer.add_tensor(name, blocks.view(np.uint8), raw_dtype=kind)
            return
        blocks = rng.integers(0, 256, (units, depth // form.terms, form.size), dtype=np.uint8)
        scale = (rng.uniform(0.5, 1.5, blocks.shape[:2]) * depth**-0.5 / SPREAD[encoding]).astype(np.float16)
        at = 208 if encoding == "Q6_K" else 0
        blocks[..., at : at + 2] = scale[..., None].view(np.uint8)
        if encoding in MIDDLE:
            blocks[..., 2:4] = (scale * np.float16(MIDDLE[encoding])).astype(np.float16)[..., None].view(np.uint8)
        total += blocks.nbytes if "embd" not in name else 0
        writer.add_tensor(name, blocks.reshape(units, -1), raw_dtype=kind)

    matrix("token_embd.weight", WORDS, HIDDEN)
    matrix("output.weight", WORDS, HIDDEN)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for n in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{n}.{name}.weight", np.ones(HIDDEN, np.float32))
        for name, units in (("attn_q", HIDDEN), ("attn_k", wide), ("attn_v", wide), ("attn_output", HIDDEN)):
            matrix(f"blk.{n}.{name}.weight", units, HIDDEN)
        for name, units, depth in (("ffn_gate", INNER, HIDDEN), ("ffn_up", INNER, HIDDEN), ("ffn_down", HIDDEN, INNER)):
            matrix(f"blk.{n}.{name}.weight", units, depth)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return total


# ---- one engine, in its own process


def armillary_timer(path: str, threads: int, bits: int, now: Callable[[], float]) -> Timer:
    """Ours, with rows of so many bits."""
    os.environ["ARMILLARY_NUM_THREADS"] = str(threads)
    from armillary.generate import Generator

    generator = Generator(path, capacity=2048, chunk=128, config={"low_bit.activation_bits": bits})

    def seconds(prompt: int) -> float:
        generator.rewind()
        if not prompt:
            generator.feed([7] * POSITION)
        begin = now()
        generator.feed([7] * (prompt or 1))
        return now() - begin

    return seconds


def llama_timer(path: str, threads: int, bits: int, now: Callable[[], float]) -> Timer:
    """llama.cpp by llama-cpp-python."""
    import llama_cpp

    llama = llama_cpp.Llama(path, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)

    def seconds(prompt: int) -> float:
        llama.reset()
        for _ in range(0 if prompt else POSITION):  # one at a time: builds with AMX were seen to crash on prompts
            llama.eval([7])
        begin = now()
        llama.eval([7] * (prompt or 1))
        return now() - begin

    return seconds


def openvino_timer(path: str, threads: int, bits: int, now: Callable[[], float]) -> Timer:
    """OpenVINO GenAI; a step is what some tokens more take."""
    import openvino
    import openvino_genai

    pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)

    def generated(count: int, tokens: int) -> float:
        # A beginning that it has seen is not computed again: every prompt has a first token of its own.
        prompt = np.full((1, count), 7, np.int64)
        prompt[0, 0] = next(fresh)
        ids = [openvino.Tensor(values) for values in (prompt, np.ones_like(prompt))]
        config = openvino_genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True)
        begin = now()
        pipeline.generate(openvino_genai.TokenizedInputs(*ids), config)
        return now() - begin

    fresh = itertools.count(8)
    first = generated(POSITION, 1)

    def seconds(prompt: int) -> float:
        nonlocal first
        if prompt:
            return generated(prompt, 1)
        first = min(first, generated(POSITION, 1))
        return (generated(POSITION, 1 + STEPS) - first) / STEPS

    return seconds


def onnxruntime_timer(path: str, threads: int, bits: int, now: Callable[[], float]) -> Timer:
    """ONNX Runtime GenAI, with the accuracy level that the file states."""
    import onnxruntime_genai

    config = onnxruntime_genai.Config(path)
    options = {"intra_op_num_threads": threads}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    model = onnxruntime_genai.Model(config)
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=2048, do_sample=False)
    stepping = onnxruntime_genai.Generator(model, params)
    stepping.append_tokens([7] * POSITION)

    def seconds(prompt: int) -> float:
        stepping.rewind_to(POSITION)
        generator = onnxruntime_genai.Generator(model, params) if prompt else stepping
        begin = now()
        generator.append_tokens([7] * (prompt or 1))
        return now() - begin

    return seconds


def folder_bytes(folder: Path) -> int:
    """The bytes of a folder's ONNX file that a token reads: all tensors but the embedding."""
    import onnx

    tensors = onnx.load(folder / "model.onnx", load_external_data=False).graph.initializer
    places = [{e.key: e.value for e in t.external_data} for t in tensors if "embed" not in t.name]
    return sum(int(place.get("length", 0)) for place in places)


ENGINES = {
    "armillary": armillary_timer,
    "llama.cpp": llama_timer,
    "openvino": openvino_timer,
    "onnxruntime": onnxruntime_timer,
}


def work(engine: str, path: str, threads: int, bits: int, clock: str) -> None:
    """Answer lines that name a prompt by its seconds."""
    timer = ENGINES[engine](path, threads, bits, CLOCKS[clock])
    timer(0)
    print("ready", flush=True)
    for line in sys.stdin:
        print(timer(int(line)), flush=True)


# ---- all of them


def start(python: str, *words: object) -> subprocess.Popen[str]:
    """A worker that is ready."""
    command = [python, __file__, "--work", *map(str, words)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "ready\n":
        if not line:
            raise SystemExit(f"{words[0]} did not start")
    return process


def ask(process: subprocess.Popen[str], prompt: int) -> float:
    """Seconds of a prompt, or of a step."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{prompt}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    """Print a table."""
    if sys.argv[1:2] == ["--work"]:
        engine, path, threads, bits, clock = sys.argv[2:]
        return work(engine, path, int(threads), int(bits), clock)
    parser = argparse.ArgumentParser()
    parser.add_argument("--encoding", default="Q4_0", choices=[*SPREAD, "F16", "BF16"])
    for name, default in (("layers", 4), ("threads", 1), ("rounds", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--prompts", default="128,1024")
    parser.add_argument("--bits", default="16,8", help="of rows, for Armillary")
    parser.add_argument("--peers", default=sys.executable, help="the Python that has the peers' packages")
    parser.add_argument("--engines", default="armillary,llama.cpp,openvino")
    parser.add_argument("--folder", type=Path, help="a model instead of the file that is written")
    parser.add_argument("--clock", default="wall", choices=sorted(CLOCKS))
    args = parser.parse_args()
    from decoders import Reader

    prompts = [0, *(int(n) for n in args.prompts.split(",") if n)]
    with tempfile.TemporaryDirectory() as folder:
        path = args.folder or Path(folder) / "model.gguf"
        size = folder_bytes(path) if args.folder else write(path, args.encoding, args.layers)
        workers: dict[str, subprocess.Popen[str]] = {}
        for engine in args.engines.split(","):
            is_ours = engine == "armillary"
            for bits in args.bits.split(",") if is_ours else ["0"]:
                python = sys.executable if is_ours else args.peers
                workers[f"{engine} {bits}" if is_ours else engine] = start(
                    python, engine, path, args.threads, bits, args.clock
                )
        best, reader = {(name, n): 1e9 for name in workers for n in prompts}, Reader(CLOCKS[args.clock])
        for _ in range(args.rounds):
            reader.read()
            for n in prompts:
                for name, process in workers.items():
                    best[name, n] = min(best[name, n], ask(process, n))
        for process in workers.values():
            process.terminate()
            process.wait()
    what = args.folder or f"{args.encoding}, {args.layers} layers"
    print(f"{what}, {size / 1e6:.0f} MB a token, {reader.rate / 1e9:.1f} GB/s")
    for name in workers:
        times = "  ".join(f"{n or 'step'}: {1e3 * best[name, n]:8.2f} ms" for n in prompts)
        print(f"{name:14} {times}  {100 * size / best[name, 0] / reader.rate:4.0f} % of bandwidth")


if __name__ == "__main__":
    main()
