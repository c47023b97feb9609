package org.armillary;

/** What the runtime says when something cannot be done: what, where, what was wanted. */
public final class ArmillaryException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public ArmillaryException(String message) {
    super(message);
  }
}
