"""The functions of the library: one entry for each, on both sides (`NE…` and `CL…`), with its arguments.

In: the table below. Out: `ROWS`, by name without the side. Invariant: it alone says what arguments there are; their
checks (`arguments.py`), classes (`classes.py`), stubs and the page of functions come from it, and names and order are
the library's.

`[modules]` names where the classes are, of the processor and of devices. An entry: the function, its class (of its own
name if it is "-") with a setting, arguments. An argument: name, "?" if it may be None, "~" if it gets its information
when there is none, ":" its kind, "@" the tensor whose shape it has, "{…}" its values, "=" its default. Kinds of tensors
are types (F: reals, Q: quantised bytes, T: any) and tensors whose type it has. ">" is left out of `validate`. `border`
stands for `border_mode` and `constant_border_value`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from armillary.compute.functions.signature import Row, row_of

_TABLE = """
[vision.filters cl.vision]
Gaussian3x3 Filter GAUSSIAN_3X3: input:U8 output:U8@input border
    | Smooths with 1 2 1 / 2 4 2 / 1 2 1, divided by 16.
Gaussian5x5 Filter GAUSSIAN_5X5: input:U8 output:U8@input border
    | Smooths with the product of 1 4 6 4 1 with itself, divided by 256.
Box3x3 Filter BOX_3X3: input:U8 output:U8@input border
    | The mean of 3x3 pixels.
Median3x3 Filter MEDIAN_3X3: input:U8 output:U8@input border
    | The median of 3x3 pixels.
Erode Filter ERODE: input:U8 output:U8@input border
    | The least of 3x3 pixels.
Dilate Filter DILATE: input:U8 output:U8@input border
    | The greatest of 3x3 pixels.
Sobel3x3 Gradient SOBEL_3X3: input:U8 output_x?:S16@input output_y?:S16@input border
    | Gradients by 3x3 pixels, as S16.
Sobel5x5 Gradient SOBEL_5X5: input:U8 output_x?:S16@input output_y?:S16@input border
    | Gradients by 5x5 pixels, as S16.
Sobel7x7 Gradient SOBEL_7X7: input:U8 output_x?:S32@input output_y?:S32@input border
    | Gradients by 7x7 pixels, as S32.
Scharr3x3 Gradient SCHARR_3X3: input:U8 output_x?:S16@input output_y?:S16@input border
    | Gradients by 3x3 pixels with the weights 3 10 3, as S16.
Derivative Gradient DERIVATIVE: input:U8 output_x?:S16@input output_y?:S16@input border
    | Differences of the pixels on both sides, as S16.
Convolution3x3 Matrix 3: input:U8 output:U8|S16@input conv:numbers scale:int{0..}=0 border
    | A matrix of 3x3, by rows; `scale` 0 is the sum of its values (1 where that is 0).
Convolution5x5 Matrix 5: input:U8 output:U8|S16@input conv:numbers scale:int{0..}=0 border
    | A matrix of 5x5, by rows; `scale` 0 is the sum of its values (1 where that is 0).
Convolution7x7 Matrix 7: input:U8 output:U8|S16@input conv:numbers scale:int{0..}=0 border
    | A matrix of 7x7, by rows; `scale` 0 is the sum of its values (1 where that is 0).
Convolution9x9 Matrix 9: input:U8 output:U8|S16@input conv:numbers scale:int{0..}=0 border
    | A matrix of 9x9, by rows; `scale` 0 is the sum of its values (1 where that is 0).
ConvolutionRectangle -: input:U8 output:U8|S16@input conv:numbers rows:int{3,5,7,9} cols:int{3,5,7,9}
    scale:int{0..}=0 border
    | A matrix whose sides are 3, 5, 7 or 9, by rows; `scale` 0 is the sum of its values (1 where that is 0).
NonLinearFilter -: input:U8 output:U8@input func:NonLinearFilterFunction mask_size:int{3,5}=3
    pattern:MatrixPattern=BOX mask?:numbers=None border
    | The least, greatest or middle pixel under a mask of 3x3 or 5x5.
NonMaximaSuppression3x3 -: input:U8|F32 output:input@input border_mode:BorderMode{UNDEFINED,CONSTANT}=UNDEFINED
    | Pixels that are larger than all around; others become 0. Beside a CONSTANT border are zeros.

[vision.arithmetic cl.vision]
AbsoluteDifference -: input1:U8|S16 input2:input1@input1 output:input1@input1
    | |a - b|, of U8 or S16.
BitwiseAnd Pairwise BITWISE_AND: input1:U8 input2:U8@input1 output:U8@input1
    | a and b, bit by bit.
BitwiseOr Pairwise BITWISE_OR: input1:U8 input2:U8@input1 output:U8@input1
    | a or b, bit by bit.
BitwiseXor Pairwise BITWISE_XOR: input1:U8 input2:U8@input1 output:U8@input1
    | a or b but not both, bit by bit.
BitwiseNot -: input:U8 output:U8@input
    | Every bit the other way.
Threshold -: input:U8 output:U8@input threshold:int{0..255} false_value:int{0..255}=0 true_value:int{0..255}=255
    type:ThresholdType=BINARY upper:int{0..255}=0
    | One value for pixels above a threshold (RANGE: from it to `upper`, both included), another one for the rest.
Accumulate -: input:U8 accum:S16@input
    | accum += input, saturated to S16.
AccumulateSquared -: input:U8 shift:int{0..15} accum:S16@input
    | accum += input * input >> shift, saturated to S16.
AccumulateWeighted -: input:U8 alpha:float{0..1} accum:U8@input use_fp16:bool=False
    | accum = (1 - alpha) * accum + alpha * input, without its fraction.
ArithmeticAddition Sum 1: input1:U8|S16|F32 input2:U8|S16|F32@input1 output:U8|S16|F32@input1
    policy:ConvertPolicy=SATURATE
    | a + b.
ArithmeticSubtraction Sum -1: input1:U8|S16|F32 input2:U8|S16|F32@input1 output:U8|S16|F32@input1
    policy:ConvertPolicy=SATURATE
    | a - b.
PixelWiseMultiplication -: input1:U8|S16|F32 input2:U8|S16|F32@input1 output:U8|S16|F32@input1 scale:float=1.0
    overflow_policy:ConvertPolicy=SATURATE rounding_policy:RoundingPolicy=TO_ZERO
    | a * b * scale; scales are 1/2^n (n up to 15, rounded to zero) and 1/255 (rounded to nearest, even).
Magnitude -: input1:S16 input2:S16@input1 output:S16@input1 mag_type:MagnitudeType=L2NORM
    | How long a gradient is, along x and y.
Phase -: input1:S16 input2:S16@input1 output:U8@input1 phase_type:PhaseType=SIGNED
    | Where a gradient along x and y points.
TableLookup -: input:U8|S16 lut:Lut output:input@input
    | Every pixel as a table says, whose values may change between runs; a pixel without an entry stays.

[vision.colour cl.vision]
ColorConvert -: input:Picture output:Picture
    | The same image in another format; formats say what is converted to what.
ChannelExtract -: input:Picture channel:Channel output:U8
    | One channel of an image, as U8; chroma of half size stays so.
ChannelCombine -: plane0:U8 plane1:U8 plane2:U8 plane3?:U8 output:Picture
    | Planes of one channel (R, G, B, A or Y, U, V) as one image; the fourth is None but for RGBA8888.

[vision.geometry cl.vision]
Scale -: input:U8|S16|F32 output:input policy:InterpolationPolicy=NEAREST_NEIGHBOR border
    | Another size: by the nearest pixel, between four, or the mean of a box; AREA to a larger size is the nearest.
Remap -: input:U8 map_x:F32@output map_y:F32@output output:U8
    policy:InterpolationPolicy{NEAREST_NEIGHBOR,BILINEAR}=NEAREST_NEIGHBOR border
    | The pixel at the place that two maps of F32 say.
WarpAffine Warp 6: input:U8 output:U8 matrix:numbers
    policy:InterpolationPolicy{NEAREST_NEIGHBOR,BILINEAR}=NEAREST_NEIGHBOR border
    | By six numbers, by columns as in OpenVX: from places of the output to those of the input.
WarpPerspective Warp 9: input:U8 output:U8 matrix:numbers
    policy:InterpolationPolicy{NEAREST_NEIGHBOR,BILINEAR}=NEAREST_NEIGHBOR border
    | By nine numbers, by columns as in OpenVX; places are divided by the third row's.

[vision.statistics cl.statistics]
Histogram -: input:U8 >output:Distribution1D
    | How many pixels fall in each bin.
EqualizeHistogram -: input:U8 output:U8@input
    | Values by how many pixels are at most as bright.
MeanStdDev -: input:U8 >mean:Scalar >stddev?:Scalar=None
    | The mean and the standard deviation of all pixels.
MinMaxLocation -: input:U8|S16|F32 >min:Scalar >max:Scalar >min_loc?:Places=None >max_loc?:Places=None
    >min_count?:Scalar=None >max_count?:Scalar=None
    | The least and the greatest value, how often they are there, and where (x, y).
IntegralImage -: input:U8 output:U32@input
    | The sum of all valid pixels above and to the left, a pixel's own included, as U32.

[vision.features cl.features]
FastCorners -: input:U8 threshold:float{1..254} >nonmax_suppression:bool >corners:KeyPoints border
    | Corners by 9 of 16 pixels on a circle that are all brighter or all darker than the middle by a threshold.
HarrisCorners -: input:U8 threshold:float{0..} min_dist:float{0..} >sensitivity:float gradient_size:int{3,5,7}
    block_size:int{3,5,7} >corners:KeyPoints border
    | Corners by the matrix of gradients in a block, the strongest first, at least a distance apart.
CannyEdge -: input:U8 output:U8@input upper_thr:int{0..32767} lower_thr:int{0..32767} gradient_size:int{3,5}
    norm_type:int{1,2} border
    | Edges: crests of the gradient (norm 1: L1, 2: L2) above a threshold, and what hangs on to them above a lower one.

[vision.pyramid cl.pyramids]
GaussianPyramidHalf -: input:U8 pyramid:Pyramid border
    | Each level half the one before; level 0 becomes a copy of the image.
GaussianPyramidOrb -: input:U8 pyramid:Pyramid border
    | Each level 0.8409 of the one before; level 0 becomes a copy of the image.
LaplacianPyramid -: input:U8 pyramid:Pyramid output:S16 border
    | What smoothing takes away at each level, as S16; the output is the smoothed last level.
LaplacianReconstruct -: pyramid:Pyramid input:S16 output:U8 border
    | The image of a Laplacian pyramid: what is left, enlarged, plus each level; nothing beside an image is read.

[vision.hog cl.features]
HOGDescriptor -: input:U8 output:F32 hog:HOG border
    | The descriptors of an image's blocks (`HOGInfo.tensor_info`).
HOGDetector -: input:F32 hog:HOG >detection_windows:Windows detection_window_stride:Size2D >threshold:float=0.0
    >idx_class:int=0
    | Windows of an image's descriptors whose score, by a linear classifier, is above a threshold; the list grows.
HOGMultiDetection -: input:U8 multi_hog:MultiHOG >detection_windows:Windows detection_window_strides:Sizes border
    >threshold:float=0.0 >non_maxima_suppression:bool=False >min_distance:float=1.0
    | Windows of several models in one image; of those of a model that are close to one another the best, if asked.

[vision.flow cl.features]
OpticalFlow -: old_pyramid:Pyramid new_pyramid:Pyramid >old_points:Points >new_points_estimates:Points
    >new_points:KeyPoints >termination:Termination >epsilon:float num_iterations:int{1..} window_dimension:int{1..}
    >use_initial_estimate:bool=False border
    | Points of the first image in the second.

[nn.convolution cl.layers]
GEMMConvolutionLayer -: input:F|Q weights:T biases?:T output~:input conv_info:PadStrideInfo
    weights_info?:WeightsInfo=None dilation?:Size2D=None act_info?:ActivationLayerInfo=None num_groups:int{1..}=1
    | A convolution as a product of matrices on register tiles.
DirectConvolutionLayer -: input:F weights:input biases?:input output~:input conv_info:PadStrideInfo
    act_info?:ActivationLayerInfo=None enable_fast_math:bool=False
    | A convolution that multiplies where the image lies.
WinogradConvolutionLayer -: input:F weights:input biases?:input output~:input conv_info:PadStrideInfo
    act_info?:ActivationLayerInfo=None enable_fast_math:bool=False
    | Winograd's F(2x2, 3x3): transforms of 4x4 tiles around 16 products of matrices.
FFTConvolutionLayer -: input:F weights:input biases?:input output~:input conv_info:PadStrideInfo
    act_info?:ActivationLayerInfo=None enable_fast_math:bool=False
    | A convolution by Fourier transforms of 16x16 tiles, for kernels of up to 15x15 that move by one pixel.
DepthwiseConvolutionLayer -: input:F|Q weights:T biases?:T output~:input conv_info:PadStrideInfo
    depth_multiplier:int{1..}=1 act_info?:ActivationLayerInfo=None dilation?:Size2D=None
    | Each channel by kernels of its own; weights are (width, height, channels * depth_multiplier).
ConvolutionLayer -: input:F|Q weights:T biases?:T output~:input conv_info:PadStrideInfo
    weights_info?:WeightsInfo=None dilation?:Size2D=None act_info?:ActivationLayerInfo=None
    enable_fast_math:bool=False num_groups:int{1..}=1
    | A convolution by the method that fits: Winograd for float32, 3x3, strides of 1 and biases; else GEMM.

[nn.layers cl.layers]
ActivationLayer -: input:F output?:F@input act_info:ActivationLayerInfo
    | y = f(x); without an output, in place.
SoftmaxLayer -: input:F output~:F@input beta:float=1.0 axis:int=0
    | exp(beta * x) over its sum along a dimension (0: along a row).
PoolingLayer -: input:F|Q output~:input pool_info:PoolingLayerInfo
    | The largest element under a window, the mean, or the root of the mean of squares.
NormalizationLayer -: input:F output~:F@input norm_info:NormalizationLayerInfo
    | Local response normalisation over channels, rows, or planes.
BatchNormalizationLayer -: input:F output?:F@input mean:F var:F beta?:F=None gamma?:F=None epsilon:float{>0}=0.001
    act_info?:ActivationLayerInfo=None
    | (x - mean) / sqrt(var + epsilon) * gamma + beta, by channel; without an output, in place.
QuantizationLayer -: input:F output:Q@input
    | Real numbers as bytes of the output's scale and offset: rounded to nearest, halves away from zero.
DequantizationLayer -: input:Q output~:F@input
    | (value - offset) * scale.

[nn.product cl.layers]
GEMM -: a:F b:a c?:F d~:F alpha:float=1.0 beta:float=0.0 gemm_info?:GEMMInfo=None
    | d = alpha * a * b + beta * c.
GEMMLowpMatrixMultiplyCore -: a:Q b:a c?:S32 output~:S32|a gemm_info?:GEMMInfo=None
    | Products of bytes less their offsets, in 32 bits; plus `c`, and requantised where the output is of bytes.
FullyConnectedLayer -: input:F|Q weights:input biases?:T output~:input fc_info?:FullyConnectedLayerInfo=None
    | Every output from every input of a batch: weights (inputs, outputs).

[nn.shape cl.layers]
ConcatenateLayer -: inputs:Tensors output~:T axis:int{0..3}
    | Tensors one after another along a dimension.
WidthConcatenateLayer Along 0: inputs:Tensors output~:T axis?:int{0..3}=None
    | Images side by side.
HeightConcatenateLayer Along 1: inputs:Tensors output~:T axis?:int{0..3}=None
    | Images one below another.
DepthConcatenateLayer Along 2: inputs:Tensors output~:T axis?:int{0..3}=None
    | The channels of one image after those of another.
ReshapeLayer -: input:T output:input
    | The same elements in the same order, in the output's shape.
FlattenLayer -: input:T output~:input
    | Each image of a batch as one row.
Permute -: input:T output~:input perm:PermutationVector
    | Dimension n of the output is dimension `perm[n]` of the input.
ElementwiseAddition Elementwise add: input1:F32|S32 input2:input1@input1 output~:input1@input1
    | a + b.
ElementwiseMax Elementwise maximum: input1:F32|S32 input2:input1@input1 output~:input1@input1
    | The larger of two.
ElementwiseMin Elementwise minimum: input1:F32|S32 input2:input1@input1 output~:input1@input1
    | The smaller of two.
"""


def _entries() -> Iterator[Row]:
    """The entries, in order."""
    places, lines = ("", ""), _TABLE.splitlines()
    for at, line in enumerate(lines):
        if line.startswith("["):
            places = (line[1:-1].split()[0], line[1:-1].split()[1])
        elif line and not line.startswith(" "):
            end = next(k for k in range(at, len(lines)) if lines[k].startswith("    | "))
            head, _, arguments = line.partition(": ")
            rest = [arguments, *lines[at + 1 : end]]
            yield row_of(head.split(), places, " ".join(rest).split(), lines[end].removeprefix("    | "))


ROWS: Mapping[str, Row] = {row.name: row for row in _entries()}
