package org.armillary;

/** The type of an element, by DLPack's codes: {@code new DType("float32")}. */
public final class DType {
  private static final String[] KINDS = {"int", "uint", "float", "handle", "bfloat", "", "bool"};

  public final int typeCode;
  public final int bits;

  public DType(int typeCode, int bits) {
    this.typeCode = typeCode;
    this.bits = bits;
  }

  public DType(String name) {
    int digits = name.length();
    while (digits > 0 && Character.isDigit(name.charAt(digits - 1))) {
      digits--;
    }
    int code = -1;
    for (int i = 0; i < KINDS.length; i++) {
      if (!KINDS[i].isEmpty() && KINDS[i].equals(name.substring(0, digits))) {
        code = i;
      }
    }
    boolean isBool = code == 6 && digits == name.length();
    if (code < 0 || (digits == name.length() && !isBool)) {
      throw new ArmillaryException("type \"" + name + "\" is unknown; wanted a name such as float32 or int8");
    }
    this.typeCode = code;
    this.bits = isBool ? 8 : Integer.parseInt(name.substring(digits));
  }

  /** Bytes that an element takes in memory; types of less than a byte take a whole one. */
  public int numOfBytes() {
    return (bits + 7) / 8;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof DType && ((DType) other).typeCode == typeCode && ((DType) other).bits == bits;
  }

  @Override
  public int hashCode() {
    return typeCode << 8 | bits;
  }

  @Override
  public String toString() {
    String kind = typeCode >= 0 && typeCode < KINDS.length ? KINDS[typeCode] : "type" + typeCode + "_";
    return typeCode == 6 ? "bool" : kind + bits;
  }
}
