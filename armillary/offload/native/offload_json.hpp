// Reading the JSON of an offloaded function.
//
// In: the text that the code generator wrote. Out: a tree of `Value`s; access by key or index throws std::runtime_error with
// what was looked for. Invariant: a value is a text, a list or a map; numbers are kept as their text.
#pragma once

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace offload {

struct Value {
  std::string text;
  std::vector<Value> items;
  std::map<std::string, Value> members;

  const Value &operator[](const std::string &key) const {
    auto found = members.find(key);
    if (found == members.end()) throw std::runtime_error("JSON: there is no " + key);
    return found->second;
  }
  const Value &operator[](size_t index) const {
    if (index >= items.size()) throw std::runtime_error("JSON: a list is too short");
    return items[index];
  }
  bool has(const std::string &key) const { return members.count(key) != 0; }
  long number() const { return std::strtol(text.c_str(), nullptr, 10); }
};

class Reader {
 public:
  explicit Reader(const char *text) : at_(text) {}

  Value read() {
    skip();
    Value value;
    if (take('{')) {
      while (!take('}')) {
        std::string key = read().text;
        need(':');
        value.members[key] = read();
        if (!take(',') && *at_ != '}') fail();
      }
    } else if (take('[')) {
      while (!take(']')) {
        value.items.push_back(read());
        if (!take(',') && *at_ != ']') fail();
      }
    } else if (take('"', false)) {
      value.text = quoted();
    } else {
      while (*at_ && std::string(",]} \n\t\r").find(*at_) == std::string::npos) value.text += *at_++;
      if (value.text.empty()) fail();
    }
    skip();
    return value;
  }

 private:
  void skip() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r') at_++;
  }
  bool take(char wanted, bool skips = true) {
    if (skips) skip();
    if (*at_ != wanted) return false;
    at_++;
    if (skips) skip();
    return true;
  }
  void need(char wanted) {
    if (!take(wanted)) fail();
  }
  std::string quoted() {
    std::string text;
    while (*at_ && *at_ != '"') {
      if (*at_ == '\\' && at_[1]) at_++;  // names are plain: an escape stands for its letter
      text += *at_++;
    }
    if (*at_ != '"') fail();
    at_++;
    return text;
  }
  [[noreturn]] void fail() const { throw std::runtime_error("JSON: damaged before \"" + std::string(at_).substr(0, 20) + "\""); }

  const char *at_;
};

}  // namespace offload
