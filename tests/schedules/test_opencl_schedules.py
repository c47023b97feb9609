"""Schedules of OpenCL kernels: what they choose, and that what they compute is what the CPU computes."""

import math

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.backends.opencl.gemm.few_rows import shares_of
from armillary.backends.opencl.graph.winograd_conv2d import opencl_winograd_conv2d
from armillary.backends.opencl.points import points_of
from armillary.backends.opencl.space import DEPTHWISE, PLAIN, Tiling, config_of, tiling_of
from armillary.backends.opencl.tiles import (
    SHARED_BYTES,
    Product,
    Tile,
    choose_depthwise_tile,
    choose_tile,
    shared_bytes,
)
from armillary.contrib import graph_executor
from armillary.errors import ConfigError
from armillary.relay.binding import bind_params_by_name
from armillary.relay.expr import Call
from armillary.relay.infer import infer_type
from armillary.relay.op import get_op
from armillary.relay.walk import post_order
from armillary.target.choice import Choice
from armillary.transform import PassContext

LAYERS = [  # channels, units, size, taps, stride, padding, groups
    (40, 32, 14, 3, 1, 1, 1),
    (3, 16, 23, 7, 2, 3, 1),
    (24, 20, 9, 1, 2, 0, 1),
    (8, 5, 7, 3, 1, 0, 1),
    (8, 8, 10, 3, 2, 1, 8),
]


def _layer(channels, units, size, taps, stride, padding, groups):
    random = np.random.default_rng(7)
    shapes = {"w": (units, channels // groups, taps, taps), "b": (units, 1, 1)}
    params = {name: random.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    x, w, b = relay.var("x", shape=(2, channels, size, size)), *(relay.var(n, shape=s) for n, s in shapes.items())
    body = relay.nn.conv2d(x, w, strides=(stride, stride), padding=(padding, padding), groups=groups)
    module = armillary.IRModule.from_expr(relay.Function([x, w, b], relay.nn.relu(body + b)))
    return module, params, random.standard_normal((2, channels, size, size)).astype("float32")


def _run(library, device, value):
    graph = graph_executor.GraphModule(library["default"](device))
    graph.set_input("x", value)
    graph.run()
    return graph.get_output(0).numpy()


@needs_opencl
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("channels", "taps", "stride"), [(96, 3, 2), (48, 5, 1)])
def test_work_items_of_many_depthwise_sums_have_several_rows(channels, taps, stride, dtype):
    random, size = np.random.default_rng(3), 112
    x = relay.var("x", shape=(1, channels, size, size), dtype=dtype)
    weight = relay.const(random.standard_normal((channels, 1, taps, taps)).astype(dtype))
    pads = {"strides": (stride, stride), "padding": (taps // 2, taps // 2), "groups": channels}
    conv = relay.nn.conv2d(x, weight, out_dtype="float32", **pads)
    infer_type(relay.Function([x], conv))
    first = points_of(conv)[0].choice
    assert first.algorithm == DEPTHWISE.name and tiling_of(first).tile.sums[1] > 1
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.relu(conv)))
    value = random.standard_normal((1, channels, size, size)).astype(dtype)
    library = relay.build(module, "opencl")
    _, over_y, over_x = tiling_of(first).tile.threads
    assert f"reqd_work_group_size({over_x}, {over_y}, " in library.get_lib().get_source("cl")
    wanted = _run(relay.build(module, "llvm"), armillary.cpu(), value)
    np.testing.assert_allclose(_run(library, armillary.opencl(), value), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "work",
    [
        Product(1, (512, 14, 14), 1, (3, 3), (1, 1)),  # too few results
        Product(32, (96, 112, 112), 1, (1, 3), (1, 1)),  # rows share nothing
        Product(32, (96, 112, 112), 2, (3, 3), (1, 1)),  # groups of two channels
        Product(32, (96, 56, 56), 1, (7, 7), (1, 1)),
    ],
)
def test_other_depthwise_sums_are_plain_loops(work):
    assert choose_depthwise_tile(work) is None


@needs_opencl
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_a_convolution_with_what_follows_is_one_launch_and_right(layer):
    module, params, value = _layer(*layer)
    library = relay.build(module, "opencl", params=params)
    assert sum(len(f.launches) for f in library.descriptor.functions.values()) == 1
    wanted = _run(relay.build(module, "llvm", params=params), armillary.cpu(), value)
    np.testing.assert_allclose(_run(library, armillary.opencl(), value), wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["argsort", "sort", "topk"])
def test_kernels_that_order_many_short_rows_are_short_enough_for_a_driver(name):
    """A program as long as the square of a row took a driver minutes."""
    x = relay.var("x", shape=(40, 16))
    body = {"argsort": relay.argsort, "sort": relay.sort, "topk": lambda x: relay.topk(x, 13, ret_type="values")}[name]
    library = relay.build(armillary.IRModule.from_expr(relay.Function([x], body(x))), "opencl")
    assert len(library.get_lib().imported_modules[0].get_source()) < 6000


def test_tiles_go_through_shared_memory():
    module, params, _ = _layer(*LAYERS[0])
    source = relay.build(module, "opencl", params=params).get_lib().imported_modules[0].get_source()
    assert source.count("__local float") == 2 and source.count("barrier(") == 2


@pytest.mark.parametrize(
    "work",
    [
        Product(1, (64, 56, 56), 64, (3, 3), (1, 1)),
        Product(1, (512, 7, 7), 512, (3, 3), (1, 1)),
        Product(1, (64, 112, 112), 3, (7, 7), (2, 2)),
        Product(1, (192, 71, 71), 80, (3, 3), (1, 1)),
    ],
    ids=str,
)
def test_a_tile_divides_the_result_and_fits_a_group(work):
    tile = choose_tile(work)
    assert tile is not None
    whole = [over * own for over, own in zip(tile.threads, tile.sums, strict=True)]
    assert all(extent % part == 0 for extent, part in zip(work.result, whole, strict=True))
    assert tile.items <= 256 and work.channels % tile.step == 0 and shared_bytes(work, tile) <= SHARED_BYTES


@needs_opencl
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 1000), 1), ((1, 7, 700), (1, 2)), ((600, 3), 0), ((2, 520, 3, 1, 4), 1)]
)
def test_long_sums_of_few_elements_are_shared_by_a_group(shape, axis):
    x = relay.var("x", shape=shape)
    module = armillary.IRModule.from_expr(relay.Function([x], relay.sum(x, axis)))
    library = relay.build(module, "opencl")
    assert "__local" in library.get_lib().imported_modules[0].get_source()
    value = np.random.default_rng(2).random(shape).astype("float32")
    np.testing.assert_allclose(_run(library, armillary.opencl(), value), value.sum(axis), rtol=1e-5)


@needs_opencl
@pytest.mark.parametrize(("left", "right"), [((16, 40), (24, 40)), ((7, 33), (5, 33)), ((1, 64), (10, 64))])
def test_a_dense_layer_is_right_for_many_rows_and_for_one(left, right):
    x, w = relay.var("x", shape=left), relay.var("w", shape=right)
    weights = np.random.default_rng(5).standard_normal(right).astype("float32")
    module = armillary.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    library = relay.build(module, "opencl", params={"w": weights})
    value = np.random.default_rng(6).standard_normal(left).astype("float32")
    np.testing.assert_allclose(
        _run(library, armillary.opencl(), value), np.maximum(value @ weights.T, 0), rtol=1e-4, atol=1e-4
    )


@needs_opencl
@pytest.mark.parametrize("rows", [1, 3])
def test_a_long_dense_layer_and_what_follows_are_one_launch(rows):
    x, w, b = relay.var("x", shape=(rows, 1000)), relay.var("w", shape=(24, 1000)), relay.var("b", shape=(24,))
    random = np.random.default_rng(5)
    given = {"w": random.standard_normal((24, 1000)).astype("float32"), "b": random.random(24).astype("float32")}
    body = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), b))
    library = relay.build(armillary.IRModule.from_expr(relay.Function([x, w, b], body)), "opencl", params=given)
    source = library.get_lib().imported_modules[0].get_source()
    # 64 work-items sum a column: halves of them are added log2(64) times behind a barrier, for all rows at once
    halvings = int(math.log2(shares_of(24, 1000).lanes))
    assert halvings == 6
    assert source.count("__kernel") == 1 and source.count("barrier(") == halvings and "< 64" not in source
    value = random.standard_normal((rows, 1000)).astype("float32")
    wanted = np.maximum(value.astype("float64") @ given["w"].T + given["b"], 0)
    np.testing.assert_allclose(_run(library, armillary.opencl(), value), wanted, rtol=1e-4, atol=1e-4)


@needs_opencl
def test_a_batch_of_products_goes_through_shared_memory():
    x, w = relay.var("x", shape=(3, 16, 20)), relay.var("w", shape=(3, 24, 20))
    weights = np.random.default_rng(5).standard_normal((3, 24, 20)).astype("float32")
    module = armillary.IRModule.from_expr(relay.Function([x, w], relay.nn.batch_matmul(x, w)))
    library = relay.build(module, "opencl", params={"w": weights})
    assert "__local" in library.get_lib().imported_modules[0].get_source()
    value = np.random.default_rng(6).standard_normal((3, 16, 20)).astype("float32")
    wanted = value @ weights.transpose(0, 2, 1)
    np.testing.assert_allclose(_run(library, armillary.opencl(), value), wanted, rtol=1e-4, atol=1e-4)


def _winograd(shape, units, tile, after, **attrs):
    random = np.random.default_rng(1)
    weight = random.standard_normal((units, shape[1], 3, 3)).astype("float32") / 3
    x = relay.var("x", shape=shape)
    transformed = get_op("opencl.winograd_weight")(relay.const(weight), tile_size=tile)
    mine = get_op("opencl.conv2d_winograd")(x, transformed, tile_size=tile, padding=(1, 1), **attrs)
    direct = relay.nn.conv2d(x, relay.const(weight), padding=(1, 1))
    return [armillary.IRModule.from_expr(relay.Function([x], after(y))) for y in (mine, direct)]


def test_a_work_item_sums_its_own_results_and_none_between():
    choice = Choice("conv2d.winograd", (("tile", 4), *config_of(Tiling(Tile((8, 1, 8), (4, 1, 2), 16)))))
    module, _ = _winograd((1, 64, 16, 16), 64, 4, relay.nn.relu, choice=str(choice))
    source = relay.build(module, "opencl").get_lib().imported_modules[0].get_source()
    assert "float products_local[8];" in source  # 4 x 2 sums, not the 4 x 9 that their columns span


@needs_opencl
@pytest.mark.parametrize(
    ("shape", "units", "tile"),
    [
        ((1, 32, 15, 15), 8, 4),
        ((2, 16, 14, 14), 24, 2),
        ((1, 64, 28, 28), 64, 4),
    ],
    ids=str,
)
def test_winograd_is_three_launches_and_right(shape, units, tile):
    shift = relay.const(np.random.default_rng(3).standard_normal((units, 1, 1)).astype("float32"))
    mine, direct = _winograd(shape, units, tile, lambda y: relay.nn.relu(y + shift))
    value = np.random.default_rng(4).standard_normal(shape).astype("float32")
    library = relay.build(mine, "opencl")
    launches = [len(f.launches) for f in library.descriptor.functions.values()]
    assert sorted(launches) == [1, 3]  # the first: the weights' transform, when they are loaded
    wanted = _run(relay.build(direct, "llvm"), armillary.cpu(), value)
    np.testing.assert_allclose(_run(library, armillary.opencl(), value), wanted, rtol=1e-4, atol=2e-4)


def _winograd_tiles(channels, units, size, context):
    weight = np.random.default_rng(2).standard_normal((units, channels, 3, 3)).astype("float32")
    x = relay.var("x", shape=(1, channels, size, size))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(x, relay.const(weight), padding=(1, 1))))
    with context:
        made = opencl_winograd_conv2d(module)["main"].body
    return made.attrs.tile_size if made.op.name == "opencl.conv2d_winograd" else 0


def test_winograd_is_taken_where_the_model_says_so():
    assert _winograd_tiles(64, 64, 224, PassContext()) == 4  # a layer of VGG-16
    assert _winograd_tiles(64, 64, 224, PassContext(config={"relay.WinogradConv2D.max_tile": 2})) == 2
    assert _winograd_tiles(64, 64, 224, PassContext(config={"relay.WinogradConv2D.max_tile": 0})) == 0
    assert _winograd_tiles(3, 64, 224, PassContext()) == 0


def test_a_choice_is_its_text():
    tiling = Tiling(Tile((8, 1, 32), (8, 2, 4), 16), True)
    choice = Choice("conv2d.tiles", config_of(tiling))
    assert str(choice).startswith("conv2d.tiles threads_c=8 threads_y=1 threads_x=32 own_c=8 own_y=2 own_x=4 step=16")
    assert tiling_of(Choice.parse(str(choice))) == tiling and tiling_of(Choice("conv2d.tiles")) is None


WORK = Product(1, (32, 14, 14), 40, (3, 3), (1, 1))


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        (Tile((5, 7, 7), (1, 1, 1), 20), r"tile of \[5, 7, 7\] results does not divide \[32, 14, 14\]"),
        (Tile((4, 7, 7), (1, 1, 1), 16), "step of 16 terms does not divide 40"),
        (Tile((32, 7, 7), (1, 1, 1), 20), "1568 work-items, at most 256"),
        (Tile((4, 7, 7), (8, 1, 1), 40), "shares .* bytes, at most 12288"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused_with_the_reason(tile, message):
    call = _call_with_choice(str(Choice("conv2d.tiles", config_of(Tiling(tile)))))
    with pytest.raises(ConfigError, match=message):
        relay.build(call, "opencl")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("conv2d.tiles threads_c=4", "threads_y is missing"),
        ("conv2d.winograd tile=3", "no transform with tile=3"),
        ("conv2d.winograd tile=4 threads_c=8", "threads_y is missing"),
        ("tile=8x1x32/8x1x4/16", "cannot read"),
    ],
)
def test_a_choice_of_another_form_is_refused(choice, message):
    with PassContext(opt_level=3), pytest.raises(ConfigError, match=message):
        relay.build(_call_with_choice(choice), "opencl")


def _call_with_choice(choice):
    x, weight = relay.var("x", shape=(1, 40, 14, 14)), relay.const(np.full((32, 40, 3, 3), 0.3, "float32"))
    return armillary.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(x, weight, padding=(1, 1), choice=choice)))


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_first_point_is_what_a_build_takes(layer):
    module, params, _ = _layer(*layer)
    convolution = next(p for p in _calls(module, params) if p.op.name == "nn.conv2d")
    points = points_of(convolution)
    costs = [point.cost for point in points]
    assert len(points) > 1 and len({str(p.choice) for p in points}) == len(points)
    if layer[-1] == 1:
        assert costs == sorted(costs)
    else:
        assert points[0].choice == Choice(PLAIN.name)


def _calls(module, params):
    main = bind_params_by_name(module["main"], params)
    infer_type(main)
    return [e for e in post_order(main) if isinstance(e, Call)]
