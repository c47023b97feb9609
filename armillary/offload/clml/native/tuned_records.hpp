// Files of tuned operators: records of magic, zero, symbol and bytes, each of the two behind its length.
//
// In: a path and the symbol of a function. Out: the bytes that were kept for it, the last ones if there are several.
// Invariant: what is no such file, or ends within a record, is a std::runtime_error that names the file.
#pragma once
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

namespace clml {

constexpr uint64_t kCacheMagic = 0x434C4D4C54554E45;  // "CLMLTUNE": begins each record
constexpr uint64_t kLongest = uint64_t(1) << 32;      // bytes of a part

inline bool read_number(std::istream &file, uint64_t &out) {
  return bool(file.read(reinterpret_cast<char *>(&out), sizeof out));
}

inline void write_number(std::ostream &file, uint64_t value) {
  file.write(reinterpret_cast<const char *>(&value), sizeof value);
}

// Part by part, so that a damaged length asks for no more memory than the file has.
inline bool read_bytes(std::istream &file, std::string &out) {
  uint64_t size = 0;
  if (!read_number(file, size) || size > kLongest) return false;
  out.clear();
  char part[1 << 16];
  while (out.size() < size) {
    uint64_t left = size - out.size(), count = left < sizeof part ? left : sizeof part;
    if (!file.read(part, static_cast<std::streamsize>(count))) return false;
    out.append(part, count);
  }
  return true;
}

// Without a file: nothing.
inline std::string tuned_of(const std::string &path, const std::string &symbol) {
  std::ifstream file(path, std::ios::binary);
  uint64_t magic = 0, zero = 0;
  std::string name, bytes, found;
  while (file && file.peek() != std::ifstream::traits_type::eof()) {
    if (!read_number(file, magic) || magic != kCacheMagic || !read_number(file, zero) || !read_bytes(file, name) ||
        !read_bytes(file, bytes))
      throw std::runtime_error(path + " is no file of tuned operators, or is damaged");
    if (name == symbol) found = bytes;
  }
  return found;
}

inline void keep_tuned(const std::string &path, const std::string &symbol, const std::string &bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  write_number(file, kCacheMagic), write_number(file, 0);
  write_number(file, symbol.size()), file.write(symbol.data(), static_cast<std::streamsize>(symbol.size()));
  write_number(file, bytes.size()), file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error(path + " cannot be written");
}

}  // namespace clml
