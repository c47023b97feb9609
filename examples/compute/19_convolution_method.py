"""Which method a convolution layer takes (text: "NEConvolutionLayer")."""

from armillary.compute import DataType, NEConvolutionLayer, PadStrideInfo, TensorInfo, TensorShape, WeightsInfo


def info(*sizes: int, kind: DataType = DataType.F32) -> TensorInfo:
    """A tensor's information."""
    return TensorInfo(TensorShape(*sizes), 1, kind)


def method(input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, conv_info: PadStrideInfo) -> str:
    """As the text's `get_convolution_method`."""
    output = info(1)
    return NEConvolutionLayer.get_convolution_method(input, weights, biases, output, conv_info, WeightsInfo()).name


image, biases = info(32, 32, 3), info(24)
print("F32, 3x3, stride 1, biases:", method(image, info(3, 3, 3, 24), biases, PadStrideInfo(1, 1, 1, 1)))
print("no biases:                 ", method(image, info(3, 3, 3, 24), None, PadStrideInfo(1, 1, 1, 1)))
print("5x5:                       ", method(image, info(5, 5, 3, 24), biases, PadStrideInfo(1, 1, 1, 1)))
print("stride 2:                  ", method(image, info(3, 3, 3, 24), biases, PadStrideInfo(2, 2, 1, 1)))
bytes_ = [info(32, 32, 3, kind=DataType.QASYMM8), info(3, 3, 3, 24, kind=DataType.QASYMM8)]
print("QASYMM8:                   ", method(bytes_[0], bytes_[1], biases, PadStrideInfo(1, 1, 1, 1)))

# Output:
# F32, 3x3, stride 1, biases: WINOGRAD
# no biases:                  GEMM
# 5x5:                        GEMM
# stride 2:                   GEMM
# QASYMM8:                    GEMM
