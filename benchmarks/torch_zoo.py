"""Forty-six networks of torchvision, timm and transformers with seeded weights, by family; nothing is downloaded.

In: a name of `ZOO` and whether it is wanted small. Out: a module in its inference state whose forward takes tensors
and returns a list of tensors, and a function from a batch to its inputs. Invariant: `small` shrinks widths, depths and
images, never the architecture; else an image has the side that users have, a text 128 words, and language models eight
times the small widths. What draws numbers is seeded, weights that begin at zero or one are shaken, so that each
layer matters. It needs torchvision, timm and transformers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Inputs = tuple[torch.Tensor, ...]
Made = tuple[nn.Module, Callable[[int], Inputs]]
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WIDTHS = (
    "hidden_size",
    "intermediate_size",
    "embedding_size",
    "dim",
    "hidden_dim",
    "n_embd",
    "d_model",
    "d_kv",
    "d_ff",
)
WIDTHS += ("encoder_ffn_dim", "decoder_ffn_dim", "projection_dim", "moe_intermediate_size", "head_dim")


class Flat(nn.Module):
    """A model with inputs in the order of `names`; its results are the tensors of what it returns."""

    def __init__(self, model: nn.Module, names: tuple[str, ...] = (), first: int | None = None) -> None:
        super().__init__()
        self.model, self.names, self.first = model, names, first

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        named = zip(self.names, tensors, strict=True) if self.names else ()
        result = self.model(**dict(named)) if self.names else self.model(*tensors)
        leaves = [v for v in torch.utils._pytree.tree_leaves(result) if isinstance(v, torch.Tensor)]
        return leaves[: self.first]


class Images(nn.Module):
    """A detector of torchvision, which takes a list of images, for a batch in one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        results = self.model(list(images.unbind(0)))
        return [v for row in results for v in (row["boxes"], row["scores"], row["labels"])]


def image(side: int, *front: int) -> Callable[[int], Inputs]:
    """Images of three channels; `front`: of so many frames."""
    return lambda batch: (torch.randn(batch, 3, *front, side, side),)


def words(count: int, vocabulary: int = 100) -> Callable[[int], Inputs]:
    """Texts."""
    return lambda batch: (torch.randint(3, vocabulary, (batch, count)),)


def _torchvision(name: str, side: int, usual: int, front: tuple[int, ...] = (), **extra: Any) -> Callable[[bool], Made]:
    def make(small: bool) -> Made:
        import torchvision

        model = torchvision.models.get_model(name, weights=None, **extra)
        return Flat(model), image(side if small else usual, *front)

    return make


_SPREAD = {"cls_score": 40, "head.classification_head.cls_logits": 60, "classification_head.module_list": 4}


def _detector(name: str, side: int, **extra: Any) -> Callable[[bool], Made]:
    def make(small: bool) -> Made:
        import torchvision

        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, **extra)
        for part, weight in model.named_parameters():  # else scores are equal but for rounding, and so is their order
            factor = next((factor for name, factor in _SPREAD.items() if name in part), 1)
            weight.data.mul_(factor if part.endswith("weight") else 1)
        normalise(model, list(torch.rand(2, 3, side, side)))
        return Images(model), lambda batch: (torch.rand(batch, 3, side, side),)

    return make


def normalise(model: nn.Module, images: list[torch.Tensor] | torch.Tensor) -> None:
    """Give batch normalisations the statistics of images, else what comes behind many layers is nearly the same."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    model.eval()
    for layer in layers:
        layer.momentum = 1.0
        layer.train()
    with torch.no_grad():
        model(images)
    model.eval()


def _flow(small: bool) -> Made:
    import torchvision

    model = torchvision.models.get_model("raft_small", weights=None)
    side = 128
    return Flat(_Steps(model)), lambda b: (torch.rand(b, 3, side, side), torch.rand(b, 3, side, side))


class _Steps(nn.Module):
    """RAFT of two refinements."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.model(a, b, num_flow_updates=2)[-1]


def _timm(name: str, side: int, usual: int, **extra: Any) -> Callable[[bool], Made]:
    def make(small: bool) -> Made:
        import timm

        return Flat(timm.create_model(name, pretrained=False, **extra)), image(side if small else usual)

    return make


def _scaled(settings: dict[str, Any], small: bool) -> dict[str, Any]:
    return {k: v if small or k not in WIDTHS else 8 * v for k, v in settings.items()}


def _text(family: str, kind: str = "Model", **extra: Any) -> Callable[[bool], Made]:
    """A language model of transformers."""

    def make(small: bool) -> Made:
        import transformers

        settings = {"vocab_size": 100, **(extra.pop("base", SMALL) if "base" in extra else SMALL), **extra}
        known = inspect.signature(getattr(transformers, f"{family}Config").__init__).parameters
        settings = {k: v for k, v in _scaled(settings, small).items() if k in known or k in extra or "kwargs" in known}
        model = getattr(transformers, family + kind)(getattr(transformers, f"{family}Config")(**settings))
        names, example = ("input_ids",), words(12 if small else 128)
        if getattr(model.config, "is_encoder_decoder", False):
            names += ("decoder_input_ids",)
            pair = example
            return Flat(model, names, 1), lambda batch: (*pair(batch), *pair(batch))
        return Flat(model, names, 1), example

    return make


def _built(
    family: str,
    kind: str,
    settings: Callable[[bool], dict[str, Any]],
    names: tuple[str, ...],
    example: Callable[[bool, int], Inputs],
    first: int | None = 1,
) -> Callable[[bool], Made]:
    """Any other model of transformers."""

    def make(small: bool) -> Made:
        import transformers

        config = getattr(transformers, f"{family}Config")(**settings(small))
        return Flat(getattr(transformers, family + kind)(config), names, first), lambda batch: example(small, batch)

    return make


def _body(small: bool, **extra: Any) -> dict[str, Any]:
    return {**_scaled(SMALL, small), **extra}


def _vision(small: bool, **extra: Any) -> dict[str, Any]:
    return _body(small, image_size=64 if small else 224, patch_size=16, **extra)


def _pixels(small: bool, batch: int) -> torch.Tensor:
    side = 64 if small else 224
    return torch.randn(batch, 3, side, side)


def _sound(small: bool, batch: int) -> Inputs:
    return (torch.randn(batch, 3200 if small else 16000),)


def _ids(small: bool, batch: int, count: int = 0) -> torch.Tensor:
    return torch.randint(3, 100, (batch, count or (12 if small else 32)))


def _two_towers(small: bool) -> dict[str, Any]:
    places = {"max_position_embeddings": 64, "vocab_size": 100}
    text = _body(small, bos_token_id=1, eos_token_id=2, pad_token_id=0, **places)
    return {"text_config": text, "vision_config": _vision(small)}


_CONVOLUTIONS = {"conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
_WHISPER = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}


def _whisper(small: bool) -> dict[str, Any]:
    sizes = _scaled({"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}, small)
    return {
        "vocab_size": 100,
        "num_mel_bins": 40,
        "max_source_positions": 50,
        **sizes,
        **_WHISPER,
        **_ENDS,
        "use_cache": False,
    }


def _detr(small: bool) -> dict[str, Any]:
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    sizes = _scaled({"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}, small)
    return {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone_config": backbone,
        "backbone": None,
    } | {"num_queries": 12, "num_channels": 3, **sizes, **_WHISPER}


def _segformer(small: bool) -> dict[str, Any]:
    return {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 3, 4]} | {
        "decoder_hidden_size": 32 if small else 256,
        "num_labels": 5,
    }


ZOO: dict[str, dict[str, Callable[[bool], Made]]] = {
    "classification": {
        "resnet18": _torchvision("resnet18", 64, 224),
        "resnet50": _torchvision("resnet50", 64, 224),
        "mobilenet_v3_small": _torchvision("mobilenet_v3_small", 64, 224),
        "efficientnet_b0": _torchvision("efficientnet_b0", 64, 224),
        "densenet121": _torchvision("densenet121", 64, 224),
        "shufflenet_v2_x1_0": _torchvision("shufflenet_v2_x1_0", 64, 224),
        "convnext_tiny": _torchvision("convnext_tiny", 64, 224),
        "swin_t": _torchvision("swin_t", 224, 224),
        "vit_b_32": _torchvision("vit_b_32", 224, 224),
        "mixer_s32": _timm("mixer_s32_224", 224, 224),
        "mobilevit_xxs": _timm("mobilevit_xxs", 64, 256),
        "levit_128s": _timm("levit_128s", 224, 224),
        "ghostnet": _timm("ghostnet_100", 64, 224),
        "hrnet_w18_small": _timm("hrnet_w18_small", 64, 224),
        "poolformer_s12": _timm("poolformer_s12", 64, 224),
        "xcit_nano": _timm("xcit_nano_12_p16_224", 64, 224),
        "edgenext": _timm("edgenext_xx_small", 64, 256),
        "coatnet_nano": _timm("coatnet_nano_rw_224", 224, 224),
    },
    "detection": {
        "ssdlite320": _detector("ssdlite320_mobilenet_v3_large", 320),
        "faster_rcnn": _detector("fasterrcnn_mobilenet_v3_large_320_fpn", 320),
        "retinanet": _detector("retinanet_resnet50_fpn", 256, min_size=256, max_size=256),
        "yolos": _built(
            "Yolos",
            "ForObjectDetection",
            lambda s: _body(s, image_size=[64, 64] if s else [224, 224], num_detection_tokens=5),
            ("pixel_values",),
            lambda s, b: (_pixels(s, b),),
            2,
        ),
        "detr": _built("Detr", "ForObjectDetection", _detr, ("pixel_values",), lambda s, b: (_pixels(s, b),), 2),
    },
    "segmentation": {
        "deeplabv3": _torchvision("deeplabv3_mobilenet_v3_large", 64, 224, weights_backbone=None),
        "lraspp": _torchvision("lraspp_mobilenet_v3_large", 64, 224, weights_backbone=None),
        "segformer": _built(
            "Segformer", "ForSemanticSegmentation", _segformer, ("pixel_values",), lambda s, b: (_pixels(s, b),)
        ),
        "dpt": _built(
            "DPT",
            "ForDepthEstimation",
            lambda s: (
                _vision(
                    s,
                    backbone_out_indices=[0, 1, 2, 3],
                    num_hidden_layers=4,
                    fusion_hidden_size=16,
                    neck_hidden_sizes=[8, 16, 16, 16],
                )
                | {"num_hidden_layers": 4}
            ),
            ("pixel_values",),
            lambda s, b: (_pixels(s, b),),
        ),
    },
    "text": {
        "bert": _text("Bert"),
        "roberta": _text("Roberta"),
        "albert": _text("Albert", embedding_size=32),
        "deberta_v2": _text("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8),
        "distilbert": _text("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
        "gpt2": _text("GPT2", n_embd=32, n_layer=2, n_head=4, use_cache=False),
        "llama": _text("Llama", num_key_value_heads=2, use_cache=False),
        "qwen3_moe": _text(
            "Qwen3Moe",
            num_key_value_heads=2,
            use_cache=False,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            head_dim=8,
        ),
        "t5": _text("T5", use_cache=False, **_T5),
    },
    "speech": {
        "wav2vec2": _built(
            "Wav2Vec2", "ForCTC", lambda s: _body(s, vocab_size=32, **_CONVOLUTIONS), ("input_values",), _sound
        ),
        "hubert": _built("Hubert", "Model", lambda s: _body(s, **_CONVOLUTIONS), ("input_values",), _sound),
        "whisper": _built(
            "Whisper",
            "Model",
            _whisper,
            ("input_features", "decoder_input_ids"),
            lambda s, b: (torch.randn(b, 40, 100), _ids(s, b, 6)),
        ),
        "ast": _built(
            "AST",
            "ForAudioClassification",
            lambda s: _body(s, max_length=64, num_mel_bins=32),
            ("input_values",),
            lambda s, b: (torch.randn(b, 64, 32),),
        ),
    },
    "vision-language": {
        "clip": _built(
            "CLIP", "Model", _two_towers, ("input_ids", "pixel_values"), lambda s, b: (_ids(s, b), _pixels(s, b)), 4
        ),
        "siglip": _built(
            "Siglip", "Model", _two_towers, ("input_ids", "pixel_values"), lambda s, b: (_ids(s, b), _pixels(s, b)), 4
        ),
        "vilt": _built(
            "Vilt",
            "Model",
            lambda s: _vision(s, vocab_size=100, max_image_length=-1),
            ("input_ids", "pixel_values"),
            lambda s, b: (_ids(s, b), _pixels(s, b)),
            2,
        ),
    },
    "video and motion": {
        "r3d_18": _torchvision("r3d_18", 32, 112, (8,)),
        "mvit_v2_s": _torchvision("mvit_v2_s", 224, 224, (16,)),
        "raft_small": _flow,
    },
}
ROWS = {name: make for family in ZOO.values() for name, make in family.items()}


def shaken(model: nn.Module) -> nn.Module:
    """The model, its weights that are all equal and its statistics changed a little."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not tensor.is_floating_point() or tensor.numel() < 2 or not tensor.is_contiguous():
            continue
        if name.endswith("running_var") or bool((tensor == tensor.flatten()[0]).all()):
            tensor.data.add_(0.02 * torch.rand_like(tensor))
    return model


def network(name: str, is_small: bool = True) -> Made:
    """A network and its inputs for a batch."""
    torch.manual_seed(0)
    model, example = ROWS[name](is_small)
    return shaken(model.eval()), example
