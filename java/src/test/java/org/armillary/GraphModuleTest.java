package org.armillary;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import org.junit.Test;

/** A package (-Darmillary.package) with an input "x" of 6 x 8 floats and one output; x.bin and y.bin lie beside it. */
public class GraphModuleTest {
  private static final Path PACKAGE = Paths.get(System.getProperty("armillary.package"));
  private static final long[] SHAPE = {6, 8};

  private static float[] read(String name) throws IOException {
    byte[] bytes = Files.readAllBytes(PACKAGE.resolveSibling(name));
    float[] values = new float[bytes.length / 4];
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(values);
    return values;
  }

  private static NDArray input() throws IOException {
    NDArray array = NDArray.empty(SHAPE, new DType("float32"));
    array.copyFrom(read("x.bin"));
    return array;
  }

  private static Module module() {
    return Module.load(PACKAGE.toString());
  }

  @Test
  public void outputsAreThoseOfTheNetwork() throws IOException {
    try (Module module = module(); GraphModule graph = new GraphModule(module, Device.cpu())) {
      graph.setInput("x", input()).run();
      assertArrayEquals(read("y.bin"), graph.getOutput(0).asFloatArray(), 1e-5f);
      assertArrayEquals(read("x.bin"), graph.getInput("x").asFloatArray(), 0);
      assertEquals(1, graph.getNumOutputs());
      assertEquals("x", graph.inputName(graph.getInputIndex("x")));
      assertTrue(graph.time(3) > 0);
      assertTrue(graph.profile().toString(), graph.profile().size() == 2);
      NDArray out = NDArray.empty(new long[] {48});
      graph.getOutput(0, out);
      assertArrayEquals(read("y.bin"), out.asFloatArray(), 1e-5f);
    }
  }

  @Test
  public void graphsAreMadeByTheDefaultFunctionAndByGraphExecutor() throws IOException {
    try (Module module = module()) {
      GraphModule byFunction = module.getFunction("default").pushArg(Device.cpu(0)).invoke();
      byFunction.setInput("x", input()).run();
      GraphModule byJson = GraphExecutor.create(module.graphJson(), module, Device.cpu());
      byJson.loadParams(Files.readAllBytes(PACKAGE.resolveSibling("mod.params"))).setInput("x", input()).run();
      assertArrayEquals(byFunction.getOutput(0).asFloatArray(), byJson.getOutput(0).asFloatArray(), 0);
      module.release();
      byFunction.run(); // graphs live on
      byFunction.release();
      byJson.release();
    }
  }

  @Test
  public void memoryIsUsedWithoutACopy() throws IOException {
    try (Module module = module(); GraphModule graph = new GraphModule(module, Device.cpu())) {
      NDArray in = NDArray.empty(SHAPE);
      NDArray out = NDArray.empty(new long[] {48});
      graph.setInputZeroCopy("x", in).setOutputZeroCopy(0, out);
      in.copyFrom(read("x.bin"));
      graph.run();
      assertArrayEquals(read("y.bin"), out.asFloatArray(), 1e-5f);
    }
  }

  @Test
  public void threadsHaveGraphsOfTheirOwn() throws Exception {
    float[] wanted = read("y.bin");
    try (Module module = module()) {
      boolean[] right = new boolean[4];
      Thread[] threads = new Thread[right.length];
      for (int t = 0; t < threads.length; t++) {
        final int number = t;
        threads[t] = new Thread(() -> {
          try (GraphModule graph = new GraphModule(module, Device.cpu())) {
            graph.setInput("x", input());
            for (int i = 0; i < 100; i++) {
              graph.run();
            }
            float[] values = graph.getOutput(0).asFloatArray();
            right[number] = true;
            for (int i = 0; i < values.length; i++) {
              right[number] &= Math.abs(values[i] - wanted[i]) < 1e-5f;
            }
          } catch (IOException error) {
            throw new IllegalStateException(error);
          }
        });
        threads[t].start();
      }
      for (Thread thread : threads) {
        thread.join();
      }
      assertArrayEquals(new boolean[] {true, true, true, true}, right);
    }
  }

  private interface Action {
    void run() throws Exception;
  }

  private static void refused(String message, Action action) throws Exception {
    try {
      action.run();
    } catch (ArmillaryException error) {
      assertTrue(error.getMessage(), error.getMessage().contains(message));
      return;
    }
    fail("nothing was refused: " + message);
  }

  @Test
  public void mistakesAreExceptionsThatSayWhatIsWanted() throws Exception {
    refused("/nowhere/net.tar: there is no such file", () -> Module.load("/nowhere/net.tar"));
    try (Module module = module(); GraphModule graph = new GraphModule(module, Device.cpu())) {
      refused("input x was never set", graph::run);
      refused("no input", () -> graph.setInput("y", input()));
      refused("x", () -> graph.setInput("x", NDArray.empty(new long[] {6, 7})));
      refused("the graph has 1 outputs; there is no output 3", () -> graph.getOutput(3));
      refused("48 elements, got 3", () -> input().copyFrom(new float[3]));
      refused("the array holds float32, got int32", () -> input().copyFrom(new int[48]));
      refused("no function \"main\"", () -> module.getFunction("main"));
      refused("type \"real\" is unknown", () -> new DType("real"));
      refused("device \"tpu\" is unknown", () -> new Device("tpu", 0));
      graph.release();
      refused("was released", graph::run);
    }
  }

  @Test
  public void arraysOfEachTypeKeepTheirValues() {
    NDArray longs = NDArray.empty(new long[] {2}, new DType("int64"));
    longs.copyFrom(new long[] {1L << 40, -1});
    assertEquals("[1099511627776, -1]", Arrays.toString(longs.asLongArray()));
    NDArray doubles = NDArray.empty(new long[] {1}, new DType("float64"));
    doubles.copyFrom(new double[] {0.1});
    assertEquals(0.1, doubles.asDoubleArray()[0], 0);
    NDArray bytes = NDArray.empty(new long[] {3}, new DType("uint8"));
    bytes.copyFromRaw(new byte[] {1, 2, -1});
    assertArrayEquals(new byte[] {1, 2, -1}, bytes.internal());
    assertEquals(4, new DType("float32").numOfBytes());
    assertEquals("bool", new DType("bool").toString());
    assertEquals(Device.opencl(1), new Device("cl", 1));
  }
}
