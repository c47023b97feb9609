// A plugin of qemu (API 1, qemu 7.2 and later): how many instructions a program executed, and how many multiply.
//
// In: the program that qemu-aarch64 runs. Out: at its end a line "executed <all> multiplying <vector and scalar products>".
// Invariant: counting changes nothing of what the program computes; equal runs give equal counts. It declares what it uses
// of qemu itself, so no header of qemu is needed. Build: cc -O2 -shared -fPIC. See arm_instructions.py.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct block;
struct instruction;
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct block *));
extern size_t qemu_plugin_tb_n_insns(const struct block *);
extern struct instruction *qemu_plugin_tb_get_insn(const struct block *, size_t);
extern char *qemu_plugin_insn_disas(const struct instruction *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct instruction *, int operation, void *place, uint64_t amount);
extern void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
extern void qemu_plugin_outs(const char *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
static uint64_t executed, multiplying;

static int multiplies(const char *text) {
  static const char *const names[] = {"fmla", "fmadd", "sdot", "udot", "usdot", "smmla", "ummla", "usmmla", "smlal", "umlal"};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    if (strncmp(text, names[k], strlen(names[k])) == 0) return 1;
  return 0;
}

static void translated(plugin_id id, struct block *block) {
  (void)id;
  for (size_t k = 0; k < qemu_plugin_tb_n_insns(block); k++) {
    struct instruction *one = qemu_plugin_tb_get_insn(block, k);
    qemu_plugin_register_vcpu_insn_exec_inline(one, 0, &executed, 1);
    char *text = qemu_plugin_insn_disas(one);
    if (text != NULL && multiplies(text)) qemu_plugin_register_vcpu_insn_exec_inline(one, 0, &multiplying, 1);
    free(text);
  }
}

static void ended(plugin_id id, void *unused) {
  (void)id;
  (void)unused;
  char line[96];
  snprintf(line, sizeof line, "executed %llu multiplying %llu\n", (unsigned long long)executed, (unsigned long long)multiplying);
  qemu_plugin_outs(line);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
  (void)info;
  (void)argc;
  (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, NULL);
  return 0;
}
