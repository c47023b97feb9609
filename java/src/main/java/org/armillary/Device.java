package org.armillary;

/** Where a network runs, by DLPack's numbers. */
public final class Device {
  public final int deviceType;
  public final int deviceId;

  public Device(int deviceType, int deviceId) {
    this.deviceType = deviceType;
    this.deviceId = deviceId;
  }

  /** {@code "cpu"}, {@code "opencl"} or {@code "cl"}. */
  public Device(String deviceType, int deviceId) {
    this(typeOf(deviceType), deviceId);
  }

  private static int typeOf(String name) {
    switch (name) {
      case "cpu":
      case "llvm":
        return 1;
      case "opencl":
      case "cl":
        return 4;
      default:
        throw new ArmillaryException("device \"" + name + "\" is unknown; wanted cpu or opencl");
    }
  }

  public static Device cpu() {
    return cpu(0);
  }

  public static Device cpu(int deviceId) {
    return new Device(1, deviceId);
  }

  public static Device opencl() {
    return opencl(0);
  }

  public static Device opencl(int deviceId) {
    return new Device(4, deviceId);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Device
        && ((Device) other).deviceType == deviceType
        && ((Device) other).deviceId == deviceId;
  }

  @Override
  public int hashCode() {
    return deviceType << 16 | deviceId;
  }

  @Override
  public String toString() {
    return (deviceType == 1 ? "cpu" : deviceType == 4 ? "opencl" : "device" + deviceType) + "(" + deviceId + ")";
  }
}
