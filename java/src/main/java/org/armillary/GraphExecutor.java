package org.armillary;

/** {@code GraphExecutor.create(graphJson, module, device)}, as applications of the era make their graph modules. */
public final class GraphExecutor {
  private GraphExecutor() {}

  /** A graph over a module's functions; its parameters are set by {@code loadParams} or are the module's own. */
  public static GraphModule create(String graphJson, Module libmod, Device device) {
    return new GraphModule(libmod, graphJson, device);
  }
}
