package org.armillary;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** A dense array on the host. Its memory goes with the object; {@code release} need not be called. */
public final class NDArray implements AutoCloseable {
  private final long[] shape;
  private final DType dtype;
  private final ByteBuffer data;

  private NDArray(long[] shape, DType dtype, ByteBuffer data) {
    this.shape = shape.clone();
    this.dtype = dtype;
    this.data = data;
  }

  /** An array of zeros; its memory is aligned to 64 bytes, so that networks can use it in place. */
  public static NDArray empty(long[] shape, DType dtype) {
    long bytes = dtype.numOfBytes();
    for (long size : shape) {
      if (size < 0) {
        throw new ArmillaryException("an array has no shape " + Arrays.toString(shape));
      }
      bytes = Math.multiplyExact(bytes, size);
    }
    if (bytes > Integer.MAX_VALUE - 64) {
      throw new ArmillaryException("an array of " + bytes + " bytes is too large for a buffer of Java");
    }
    ByteBuffer memory = ByteBuffer.allocateDirect((int) bytes + 63);
    int skipped = (int) (-Native.address(memory) & 63);
    memory.position(skipped);
    memory.limit(skipped + (int) bytes);
    return new NDArray(shape, dtype, memory.slice().order(ByteOrder.nativeOrder()));
  }

  public static NDArray empty(long[] shape) {
    return empty(shape, new DType("float32"));
  }

  public static NDArray empty(long[] shape, DType dtype, Device device) {
    if (device.deviceType != 1) {
      throw new ArmillaryException("arrays lie on the host; a graph on " + device + " copies them");
    }
    return empty(shape, dtype);
  }

  public long[] shape() {
    return shape.clone();
  }

  public DType dtype() {
    return dtype;
  }

  /** The number of elements. */
  public long size() {
    long count = 1;
    for (long size : shape) {
      count *= size;
    }
    return count;
  }

  /** The memory itself, in the machine's order of bytes: what is written there needs no copy. */
  public ByteBuffer buffer() {
    return data.duplicate().order(ByteOrder.nativeOrder());
  }

  private ByteBuffer into(String wanted, long count) {
    if (!dtype.equals(new DType(wanted))) {
      throw new ArmillaryException("the array holds " + dtype + ", got " + wanted);
    }
    if (count != size()) {
      throw new ArmillaryException("the array has " + size() + " elements, got " + count);
    }
    return buffer();
  }

  public void copyFrom(float[] values) {
    into("float32", values.length).asFloatBuffer().put(values);
  }

  public void copyFrom(double[] values) {
    into("float64", values.length).asDoubleBuffer().put(values);
  }

  public void copyFrom(int[] values) {
    into("int32", values.length).asIntBuffer().put(values);
  }

  public void copyFrom(long[] values) {
    into("int64", values.length).asLongBuffer().put(values);
  }

  public void copyFrom(short[] values) {
    into("int16", values.length).asShortBuffer().put(values);
  }

  public void copyFrom(byte[] values) {
    copyFromRaw(values, "int8");
  }

  private void copyFromRaw(byte[] values, String wanted) {
    into(wanted, values.length).put(values);
  }

  /** Any type, as its bytes. */
  public void copyFromRaw(byte[] values) {
    if (values.length != data.capacity()) {
      throw new ArmillaryException("the array has " + data.capacity() + " bytes, got " + values.length);
    }
    buffer().put(values);
  }

  public void copyTo(NDArray target) {
    if (!target.dtype.equals(dtype) || !Arrays.equals(target.shape, shape)) {
      throw new ArmillaryException("arrays of " + this + " and " + target + " are not alike");
    }
    target.buffer().put(buffer());
  }

  public float[] asFloatArray() {
    float[] values = new float[(int) size()];
    into("float32", values.length).asFloatBuffer().get(values);
    return values;
  }

  public double[] asDoubleArray() {
    double[] values = new double[(int) size()];
    into("float64", values.length).asDoubleBuffer().get(values);
    return values;
  }

  public int[] asIntArray() {
    int[] values = new int[(int) size()];
    into("int32", values.length).asIntBuffer().get(values);
    return values;
  }

  public long[] asLongArray() {
    long[] values = new long[(int) size()];
    into("int64", values.length).asLongBuffer().get(values);
    return values;
  }

  public short[] asShortArray() {
    short[] values = new short[(int) size()];
    into("int16", values.length).asShortBuffer().get(values);
    return values;
  }

  /** The bytes of an array of any type. */
  public byte[] internal() {
    byte[] values = new byte[data.capacity()];
    buffer().get(values);
    return values;
  }

  /** Nothing to do: the memory goes with the object. */
  public void release() {}

  @Override
  public void close() {}

  @Override
  public String toString() {
    return dtype + Arrays.toString(shape);
  }
}
