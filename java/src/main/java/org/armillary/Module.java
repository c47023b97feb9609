package org.armillary;

/** A package that {@code armc compile} wrote: a .tar, the folder that it unpacks to, or a .so. */
public final class Module implements AutoCloseable {
  private long handle;
  private final String path;

  private Module(String path) {
    this.path = path;
    this.handle = Native.openPackage(path);
  }

  public static Module load(String path) {
    return new Module(path);
  }

  /** As {@code load}; what the file is, its content says. */
  public static Module load(String path, String format) {
    return new Module(path);
  }

  long handle() {
    if (handle == 0) {
      throw new ArmillaryException(path + " was released");
    }
    return handle;
  }

  /** The graph of the network. */
  public String graphJson() {
    return Native.graphJson(handle());
  }

  /** What the package was compiled for. */
  public String target() {
    return Native.target(handle());
  }

  public String typeKey() {
    return "library";
  }

  /** {@code "default"}: what makes graph modules of the package. */
  public Function getFunction(String name) {
    if (!name.equals("default")) {
      throw new ArmillaryException(path + ": Java calls networks, by \"default\"; there is no function \"" + name + "\"");
    }
    return new Function(this);
  }

  @Override
  public void close() {
    if (handle != 0) {
      Native.closePackage(handle);
      handle = 0;
    }
  }

  public void release() {
    close();
  }

  @Override
  public String toString() {
    return "Module(" + path + ")";
  }

  /** Makes graph modules: {@code module.getFunction("default").pushArg(Device.cpu()).invoke()}. */
  public static final class Function {
    private final Module module;
    private Device device = Device.cpu();

    private Function(Module module) {
      this.module = module;
    }

    public Function pushArg(Device value) {
      device = value;
      return this;
    }

    public GraphModule invoke() {
      return new GraphModule(module, device);
    }

    public GraphModule call(Device value) {
      return pushArg(value).invoke();
    }
  }
}
