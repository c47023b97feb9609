package org.armillary;

import java.nio.ByteBuffer;

/** The C functions behind the other classes. A failure is an ArmillaryException with the runtime's message. */
final class Native {
  static {
    String path = System.getProperty("armillary.library");
    if (path != null) {
      System.load(path);
    } else {
      System.loadLibrary("armillary4j");
    }
  }

  private Native() {}

  static native String version();

  static native long address(ByteBuffer buffer);

  static native long openPackage(String path);

  static native void closePackage(long handle);

  static native String graphJson(long handle);

  static native String target(long handle);

  static native long createGraph(long handle, String json, int deviceType, int deviceId);

  static native void destroyGraph(long graph);

  static native int numInputs(long graph);

  static native int numOutputs(long graph);

  static native int numNodes(long graph);

  static native String inputName(long graph, int index);

  static native int inputIndex(long graph, String name);

  static native String nodeName(long graph, int index);

  /** Type code, bits, then the sizes. */
  static native long[] inputType(long graph, int index);

  static native long[] outputType(long graph, int index);

  static native void setInput(long graph, int index, String name, ByteBuffer data, long[] type);

  static native void setZeroCopy(long graph, boolean isOutput, int index, ByteBuffer data, long[] type);

  static native void copyOut(long graph, boolean isOutput, int index, ByteBuffer data, long[] type);

  static native int loadParams(long graph, byte[] blob);

  static native void run(long graph);

  static native double time(long graph, long number);

  static native double[] profile(long graph);
}
