package org.armillary;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A network that is ready to run. One thread uses it at a time; several of one module share its parameters.
 *
 * <pre>
 * try (Module module = Module.load("net.tar"); GraphModule graph = new GraphModule(module, Device.cpu())) {
 *   graph.setInput("x", values).run();
 *   float[] scores = graph.getOutput(0).asFloatArray();
 * }
 * </pre>
 */
public final class GraphModule implements AutoCloseable {
  private long handle;
  private final Device device;
  private final Map<Object, NDArray> held = new LinkedHashMap<>(); // memory that the graph points at

  public GraphModule(Module module, Device device) {
    this(module, null, device);
  }

  GraphModule(Module module, String graphJson, Device device) {
    this.device = device;
    this.handle = Native.createGraph(module.handle(), graphJson, device.deviceType, device.deviceId);
  }

  private long handle() {
    if (handle == 0) {
      throw new ArmillaryException("the graph module was released");
    }
    return handle;
  }

  private static long[] typeOf(NDArray array) {
    long[] shape = array.shape();
    long[] type = new long[shape.length + 2];
    type[0] = array.dtype().typeCode;
    type[1] = array.dtype().bits;
    System.arraycopy(shape, 0, type, 2, shape.length);
    return type;
  }

  private static NDArray empty(long[] type) {
    long[] shape = new long[type.length - 2];
    System.arraycopy(type, 2, shape, 0, shape.length);
    return NDArray.empty(shape, new DType((int) type[0], (int) type[1]));
  }

  /** Copy an array into an input; of a package for several sizes this chooses the one that fits. */
  public GraphModule setInput(String key, NDArray value) {
    Native.setInput(handle(), -1, key, value.buffer(), typeOf(value));
    held.remove(key);
    return this;
  }

  public GraphModule setInput(int key, NDArray value) {
    Native.setInput(handle(), key, null, value.buffer(), typeOf(value));
    held.remove(inputName(key));
    return this;
  }

  /** Let an input use the array's memory from now on, without a copy. */
  public GraphModule setInputZeroCopy(String key, NDArray value) {
    Native.setZeroCopy(handle(), false, indexOf(key), value.buffer(), typeOf(value));
    held.put(key, value);
    return this;
  }

  /** Let an output be written to the array's memory from now on. */
  public GraphModule setOutputZeroCopy(int index, NDArray value) {
    Native.setZeroCopy(handle(), true, index, value.buffer(), typeOf(value));
    held.put(index, value);
    return this;
  }

  private int indexOf(String key) {
    int index = Native.inputIndex(handle(), key);
    if (index < 0) {
      throw new ArmillaryException("the network has no input \"" + key + "\"; it has " + inputNames());
    }
    return index;
  }

  public GraphModule run() {
    Native.run(handle());
    return this;
  }

  /** A copy of an input's values. */
  public NDArray getInput(int index) {
    return copyOut(false, index, empty(Native.inputType(handle(), index)));
  }

  public NDArray getInput(String key) {
    return getInput(indexOf(key));
  }

  /** A copy of an output's values. */
  public NDArray getOutput(int index) {
    return copyOut(true, index, empty(Native.outputType(handle(), index)));
  }

  public NDArray getOutput(int index, NDArray out) {
    return copyOut(true, index, out);
  }

  private NDArray copyOut(boolean isOutput, int index, NDArray out) {
    Native.copyOut(handle(), isOutput, index, out.buffer(), typeOf(out));
    return out;
  }

  /** Set the parameters of a blob; how many the network has of them. */
  public GraphModule loadParams(byte[] params) {
    Native.loadParams(handle(), params);
    return this;
  }

  public int getNumInputs() {
    return Native.numInputs(handle());
  }

  public int getNumOutputs() {
    return Native.numOutputs(handle());
  }

  public int getInputIndex(String key) {
    return Native.inputIndex(handle(), key);
  }

  public String inputName(int index) {
    return Native.inputName(handle(), index);
  }

  /** Names of all inputs, parameters too. */
  public List<String> inputNames() {
    List<String> names = new ArrayList<>();
    for (int i = 0; i < getNumInputs(); i++) {
      names.add(inputName(i));
    }
    return names;
  }

  public long[] outputShape(int index) {
    return empty(Native.outputType(handle(), index)).shape();
  }

  public Device device() {
    return device;
  }

  /** The mean seconds of some runs. */
  public double time(long number) {
    return Native.time(handle(), number) / number;
  }

  /** Run once; seconds by the name of each kernel's node. */
  public Map<String, Double> profile() {
    double[] seconds = Native.profile(handle());
    Map<String, Double> result = new LinkedHashMap<>();
    for (int i = 0; i < seconds.length; i++) {
      if (seconds[i] >= 0) {
        result.put(Native.nodeName(handle(), i), seconds[i]);
      }
    }
    return result;
  }

  @Override
  public void close() {
    if (handle != 0) {
      Native.destroyGraph(handle);
      handle = 0;
      held.clear();
    }
  }

  public void release() {
    close();
  }

  /** The version of the native runtime. */
  public static String runtimeVersion() {
    return Native.version();
  }

}
