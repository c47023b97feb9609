"""The cost model: tiles fit the registers of every CPU, estimates follow the facts, and it says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from armillary.backends.cpu.conv2d.winograd.cost import (
    Layer,
    Plan,
    best_plan,
    estimate,
    has_prefetch,
    plans,
    product_nest,
    ranked_plans,
    tiles_along,
)
from armillary.backends.cpu.cost.model import (
    SHOWN_INPUT,
    Nest,
    Tile,
    bandwidth_of,
    choose_tile,
    explained,
    ranked_tiles,
    sums_by_parts,
    tile_estimate,
    tiles,
    weights_stay,
)
from armillary.backends.explanation import Explanation
from armillary.errors import ConfigError
from armillary.target import CpuModel, cpu_model
from armillary.transform import PassContext

CPUS = {
    name: cpu_model(f"llvm -mtriple={triple} -mcpu={name}")
    for triple, names in {
        "x86_64-linux-gnu": ("x86-64", "haswell", "znver2", "znver4", "skylake-avx512", "sapphirerapids"),
        "aarch64-linux-gnu": ("cortex-a53", "cortex-a76", "neoverse-v1", "apple-m1"),
        "armv7-linux-gnueabihf": ("cortex-a9",),
    }.items()
    for name in names
}
SERVER = CPUS["sapphirerapids"]
ZEN4, AVX2, NEON = CPUS["znver4"], CPUS["haswell"], CPUS["cortex-a76"]


@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS)
@pytest.mark.parametrize("width", [1, 3, 7, 14, 28, 55, 112])
@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 7, 16])
def test_the_tile_fits_the_registers_and_hides_the_latency(cpu: CpuModel, width: int, chunks: int) -> None:
    nest = Nest(width, width, chunks, 9 * 64, bandwidth_of(chunks * 9 * 64 * 64, cpu))
    tile = choose_tile(nest, cpu)
    assert tile.rows * tile.vectors + tile.vectors + 1 <= cpu.vector_registers
    assert chunks % tile.vectors == 0 and tile.rows <= width
    if width >= 14 and chunks % 2 == 0:
        enough = min(cpu.fma_chains, cpu.vector_registers // 2)
        assert tile.rows * tile.vectors >= enough, "too few accumulators to hide the FMA latency"


@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS)
def test_tall_tiles_and_wide_blocks_fit_the_registers(cpu: CpuModel) -> None:
    for nest in (
        Nest(2, 16, 8, 64, 8.0, lines_per_image=16),
        Nest(14, 14, 4, 64, 8.0, wide=2),
        Nest(4, 4, 4, 64, 8.0, lines_per_image=4),
    ):
        for tile in tiles(nest, cpu):
            assert (tile.rows * tile.tall + 1) * tile.vectors * nest.wide + 1 <= cpu.vector_registers
            assert nest.lines_per_image % tile.tall == 0 and (tile.tall == 1 or tile.rows == nest.width)


def test_half_vectors_take_both_ports_and_so_several_blocks() -> None:
    nest = Nest(48, 64, 3, 9 * 64, bandwidth_of(9 * 64 * 24 * 4, ZEN4))
    narrow = Nest(48, 64, 3, 9 * 64, bandwidth_of(9 * 64 * 24 * 4, ZEN4), is_narrow=True)
    whole, half = (ranked_tiles(n, ZEN4)[0][1].cycles for n in (nest, narrow))
    assert half < 0.65 * whole, "two ports do half vectors"
    assert choose_tile(narrow, ZEN4).vectors == 3, "one block would load a number for each of its products"
    assert choose_tile(narrow, AVX2) == choose_tile(nest, AVX2), "nothing changes where vectors have 256 bits"


def test_chains_and_loads_come_from_the_facts_of_the_cpu() -> None:
    assert (ZEN4.fma_chains, ZEN4.loads_per_cycle) == (4, 1.0)  # 512 bits in two halves
    assert (AVX2.fma_chains, AVX2.loads_per_cycle) == (10, 2.0)
    assert (NEON.fma_chains, NEON.loads_per_cycle) == (8, 2.0)
    assert CPUS["apple-m1"].fma_chains == 16 and CPUS["apple-m1"].memory.load_ports == 3


def test_every_cpu_has_bandwidths_that_fall_from_cache_to_memory() -> None:
    for cpu in [*CPUS.values(), cpu_model("llvm")]:
        memory = cpu.memory
        assert memory.l2 > memory.l3 > memory.dram > 0 and memory.dram_all >= memory.dram and memory.ghz > 0.5


def test_the_bound_is_what_a_person_would_name() -> None:
    row = Nest(1, 1, 64, 4096, ZEN4.memory.dram)  # one row times a matrix of 16 MB
    square = Nest(56, 56, 4, 576, ZEN4.memory.l3)
    assert ranked_tiles(row, ZEN4)[0][1].bound == "memory bandwidth"
    assert ranked_tiles(square, ZEN4)[0][1].bound == "FMA units"
    assert tile_estimate(square, Tile(1, 1), ZEN4).bound in ("FMA latency", "load ports")
    assert tile_estimate(Nest(8, 8, 1, 64, 0.0), Tile(2, 1), AVX2).bound == "FMA latency"


def test_estimates_never_beat_the_peak() -> None:
    for cpu in CPUS.values():
        nest = Nest(28, 28, 8, 1152, cpu.memory.l3)
        least = 28 * 28 * 8 * 1152 / cpu.fma_ports
        assert ranked_tiles(nest, cpu)[0][1].cycles >= least


def test_weights_that_come_from_farther_cost_more() -> None:
    rates = (ZEN4.memory.l2, ZEN4.memory.l3, ZEN4.memory.dram)
    near, middle, away = (ranked_tiles(Nest(7, 7, 32, 4608, rate), ZEN4)[0][1].cycles for rate in rates)
    assert near < middle < away
    assert bandwidth_of(1 << 19, ZEN4) == ZEN4.memory.l2 and bandwidth_of(1 << 23, ZEN4) == ZEN4.memory.l3
    assert bandwidth_of(1 << 28, ZEN4) == ZEN4.memory.dram


def test_winograd_pays_for_large_images_and_reads_too_much_for_small_ones() -> None:
    large, small = Layer(64, 64, 1, 56, 56), Layer(512, 512, 1, 7, 7)
    assert ranked_plans(large, ZEN4, 4)[0][0].tile == 4
    assert estimate(large, best_plan(large, 4, ZEN4), ZEN4).cycles < 0.45 * estimate(large, Plan(0), ZEN4).cycles
    gain = [estimate(x, Plan(0), ZEN4).cycles / estimate(x, Plan(4), ZEN4).cycles for x in (large, small)]
    assert gain[0] > 1.3 * gain[1]
    assert ranked_plans(small, ZEN4, 4)[0][0].tile == 2, "two threads would wait for the weights of F(4,3)"
    assert ranked_plans(large, ZEN4, 2)[0][0].tile == 2
    assert ranked_plans(large, ZEN4, 0) == [(Plan(0), estimate(large, Plan(0), ZEN4))]


def test_with_two_ports_small_images_of_few_channels_take_the_smaller_tile() -> None:
    few, many = Layer(48, 192, 1, 13, 13), Layer(64, 256, 1, 13, 13)  # Emerald Rapids: 0.84 and 1.15 of F(4,3)'s time
    assert [ranked_plans(layer, SERVER, 4, 5 << 20)[0][0].tile for layer in (few, many)] == [2, 4]


def test_with_two_ports_direct_convolutions_of_small_images_hide_their_weights() -> None:
    narrow, square = Layer(160, 160, 1, 7, 7), Layer(512, 512, 1, 8, 8)  # in networks: 0.45 and 1.3 of F(2,3)'s time
    assert [ranked_plans(layer, SERVER, 4, 100 << 20)[0][0].tile for layer in (narrow, square)] == [0, 2]
    asked = Layer(128, 128, 1, 14, 14)
    assert has_prefetch(asked, Plan(2), SERVER) and not has_prefetch(asked, Plan(2), ZEN4)


def product_tile(layer: Layer, cpu: CpuModel) -> tuple[Plan, Tile]:
    """Form and register tile of the products, as the schedule asks for them."""
    plan = best_plan(layer, 4, cpu)
    return plan, choose_tile(product_nest(layer, plan, cpu, cpu.memory.dram), cpu)


def test_weights_beyond_a_slow_l3_are_read_once_not_by_every_strip() -> None:
    layer = Layer(128, 128, 1, 28, 28)  # 2.4 MB of weights: beyond both L2 caches, from L3 at 26 and 9 bytes per cycle
    assert product_tile(layer, ZEN4) == (Plan(4, 7), Tile(7, 1))
    assert product_tile(layer, SERVER) == (Plan(4), Tile(7, 2, 2))


def test_two_ports_take_two_blocks_where_one_waits_for_its_loads() -> None:
    layer = Layer(256, 256, 1, 56, 56)
    assert product_tile(layer, ZEN4)[1].vectors == 1
    assert product_tile(layer, SERVER)[1] == Tile(14, 2)


def test_strips_pay_where_the_weights_stay_beside_them() -> None:
    for channels, side, is_strip in ((64, 56, True), (64, 112, True), (256, 56, False), (256, 80, False)):
        plan = best_plan(Layer(channels, channels, 1, side, side), 4, SERVER)
        assert bool(plan.strip) == is_strip, (channels, side, plan)


def product(rows: int, steps: int, columns: int, lines: int = 1) -> Nest:
    return Nest(rows, lines, columns // 16, steps, 4.5, register_bytes=64, part=256)


def test_tiles_of_grouped_convolutions_stay_within_a_group() -> None:
    """Of 48 channels in and out: blocks 2 and 3 of a tile of two would be of different groups, with inputs of each."""
    grouped = Nest(56, 56, 6, 432, bandwidth_of(1 << 20, SERVER), group=3)
    assert [grouped.inputs_of(v) for v in (1, 2, 3, 6)] == [1, 2, 1, 2]
    assert choose_tile(grouped, SERVER).vectors == 3
    two, three = (tile_estimate(grouped, tile, SERVER) for tile in (Tile(14, 2), Tile(8, 3)))
    assert two.cycles > three.cycles
    assert two.cycles > tile_estimate(replace(grouped, group=0), Tile(14, 2), SERVER).cycles


def test_a_sum_goes_part_by_part_where_its_weights_crowd_l2_and_l3_is_too_slow() -> None:
    long, tile = product(64, 12544, 1024), Tile(8, 2)
    assert sums_by_parts(long, tile, SERVER)
    assert not sums_by_parts(product(64, 1536, 1024), tile, SERVER)
    assert not sums_by_parts(product(8, 12544, 1024), tile, SERVER), "one tile of rows reads each weight once"
    assert sums_by_parts(product(8, 12544, 1024, lines=4), tile, SERVER), "four lines of one tile each do not"
    assert not sums_by_parts(long, tile, ZEN4), "26 bytes a cycle from L3 are more than the 8 that a tile takes"
    whole = Nest(64, 1, 64, 12544, 4.5, register_bytes=64)
    assert tile_estimate(long, tile, SERVER).cycles < 0.8 * tile_estimate(whole, tile, SERVER).cycles


def test_a_sum_stays_whole_where_rows_would_come_again_from_beyond_l2_for_each_part() -> None:
    tile = Tile(8, 3)
    assert sums_by_parts(product(256, 3072, 768), tile, SERVER)
    assert not sums_by_parts(product(512, 3072, 768), tile, SERVER)
    assert sums_by_parts(product(512, 12544, 768), tile, SERVER), "L2 does not keep a group's weights"


@pytest.mark.parametrize(("pixels", "taken"), [(9, (9, 3)), (16, (8, 2)), (49, (14, 2))])
def test_few_pixels_share_the_wait_for_weights(pixels: int, taken: tuple[int, int]) -> None:
    again = SHOWN_INPUT * 4096 * pixels / SERVER.memory.l2
    nest = Nest(pixels, 1, 64, 1024, SERVER.memory.dram, reread=again, is_ragged=True, has_rest=pixels != 16)
    alone, asking = choose_tile(nest, SERVER), choose_tile(replace(nest, can_prefetch=True), SERVER)
    assert asking == Tile(*taken)
    assert (alone == asking) == (pixels != 16), "one tile of 16 pixels waits for each vector of weights by itself"


def test_weights_that_are_asked_for_gain_nothing_from_l1() -> None:
    nest = Nest(197, 1, 48, 192, 4.5, register_bytes=64, max_rows=8, max_sums=24, max_vectors=3)
    asked = replace(nest, is_prefetched=True)  # two vectors of 192 steps fit half of L1, three do not
    assert [choose_tile(n, SERVER) for n in (nest, asked)] == [Tile(8, 2), Tile(8, 3)]


def test_products_of_few_rows_ask_for_weights_rather_than_read_one_run() -> None:
    nest = Nest(8, 1, 384, 768, AVX2.memory.dram, max_rows=8, max_sums=24, max_vectors=4)
    assert choose_tile(nest, AVX2) == Tile(8, 1), "one run of weights, if nobody asks for them"
    tile = choose_tile(replace(nest, is_prefetched=True), AVX2)
    assert tile.rows * tile.vectors > AVX2.fma_chains and tile.rows < 8


def test_weights_stay_where_lines_are_short_or_the_data_stays_too() -> None:
    assert weights_stay(product(7, 768, 3072, lines=7), Tile(7, 3), SERVER)
    assert weights_stay(product(14, 384, 1536, lines=14), Tile(7, 3), ZEN4)
    assert not weights_stay(product(28, 192, 768, lines=28), Tile(7, 3), SERVER), "all weights stay in L2"
    assert not weights_stay(product(128, 768, 3072, lines=8), Tile(8, 3), SERVER), "3 MB of data do not stay"
    assert weights_stay(product(16, 768, 3072, lines=64), Tile(8, 3), SERVER), "16 rows take more weights than data"


def test_products_that_wait_for_weights_read_them_in_one_run() -> None:
    assert product_tile(Layer(256, 256, 1, 14, 14), SERVER) == (Plan(4), Tile(4, 1, 4))
    assert product_tile(Layer(256, 256, 1, 14, 14), ZEN4) == (Plan(4), Tile(4, 2, 2))


def test_carrying_points_costs_only_what_l2_does_not_keep() -> None:
    small, large = (Layer(128, 128, 1, side, side) for side in (28, 112))
    per_tile = [
        (estimate(x, Plan(4), SERVER, tile=Tile(7, 2)).cycles - estimate(x, Plan(4, 7), SERVER, tile=Tile(7, 2)).cycles)
        / (x.height * x.width)
        for x in (small, large)
    ]
    assert per_tile[0] < per_tile[1]


def test_strips_divide_a_row_of_tiles_and_leave_work_for_threads() -> None:
    layer = Layer(64, 64, 1, 56, 112)
    for tile in (2, 4, 6):
        across, down = -(-112 // tile), -(-56 // tile)
        strips = [plan.strip for plan in plans(layer, tile)]
        assert strips[0] == 0 and all(across % s == 0 and down * (across // s) >= 4 for s in strips[1:])


def test_tiles_of_a_dilated_layer_interleave_and_large_dilations_leave_them_empty() -> None:
    assert [tiles_along(28, 4, d) for d in (1, 2, 4, 12)] == [7, 8, 8, 12]
    assert [tiles_along(65, 4, d) for d in (1, 2, 4)] == [17, 17, 17]  # all phases alike would take 18 and 20
    assert [tiles_along(5, 4, d) for d in (1, 3, 8)] == [2, 3, 5]
    for cpu in (ZEN4, SERVER):
        plain = estimate(Layer(256, 256, 1, 32, 32), Plan(4), cpu).cycles
        assert estimate(Layer(256, 256, 1, 32, 32, 0, (4, 4)), Plan(4), cpu).cycles == plain
        assert estimate(Layer(256, 256, 1, 28, 28, 0, (14, 14)), Plan(2), cpu).cycles > 2 * plain / 3


def test_strips_of_a_dilated_layer_hold_whole_groups_of_tiles() -> None:
    strips = [plan.strip for plan in plans(Layer(64, 64, 1, 48, 48, 0, (1, 3)), 2)]
    assert strips == [0, 24, 12, 6]
    with PassContext(config={"cpu.winograd.strip": 8}):
        assert best_plan(Layer(64, 64, 1, 48, 48, 0, (1, 3)), 2, ZEN4).strip in strips


def test_direct_convolution_does_not_pay_for_taps_outside_the_data() -> None:
    for channels, share in ((64, (0.4, 0.5)), (2048, (0.4, 0.5))):
        near, wide = (Layer(channels, 64, 1, 24, 24, 0, (12, 12), taps) for taps in ((3.0, 3.0), (2.0, 2.0)))
        cycles = [estimate(layer, Plan(0), SERVER).cycles for layer in (wide, near)]
        assert share[0] < cycles[0] / cycles[1] < share[1]


def test_a_small_network_reads_its_weights_from_l3() -> None:
    layer = Layer(256, 256, 1, 14, 14)
    unknown, large, small = (estimate(layer, Plan(4), ZEN4, network=n << 20).cycles for n in (0, 100, 5))
    assert small < large == unknown
    with PassContext(config={"cpu.parameters": 5}):
        assert estimate(layer, Plan(4), ZEN4).cycles == small


def test_the_pass_context_can_ask_for_a_tile() -> None:
    nest = Nest(28, 28, 4, 64, 0.0)
    with PassContext(config={"cpu.tile": "3x2"}):
        assert choose_tile(nest, ZEN4) == Tile(3, 2)
    with PassContext(config={"cpu.tile": "28x4"}):  # does not fit: the model's own
        assert choose_tile(nest, ZEN4) == ranked_tiles(nest, ZEN4)[0][0]
    with PassContext(config={"cpu.tile": "wide"}), pytest.raises(ConfigError, match=r"'wide'(.|\n)*ROWSxVECTORS"):
        choose_tile(nest, ZEN4)
    with PassContext(config={"cpu.winograd.strip": 7}):
        assert best_plan(Layer(64, 64, 1, 56, 56), 4, ZEN4) == Plan(4, 7)


def test_an_explanation_names_the_choice_the_bound_and_what_was_passed_over() -> None:
    ranked = [e for _, e in ranked_tiles(Nest(28, 28, 4, 576, ZEN4.memory.l3), ZEN4)]
    message = explained("direct convolution", "14x2", ranked, ZEN4, ["other: it is Tuesday"])
    assert message.milliseconds == pytest.approx(ranked[0].milliseconds(ZEN4), rel=1e-3)
    assert len(message.alternatives) == 4 and message.alternatives[0][1] >= message.milliseconds
    text = "\n".join(message.sentences())
    assert "direct convolution, 14x2" in text and "bound by FMA units" in text and "not other: it is Tuesday" in text
    assert Explanation("copy").sentences() == ["copy"]
