/* What a program says when it crashes: the signal, the kernel or function that it happened in, and who called it.
 *
 * In: SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT, also where a stack is full. Out: lines on standard error; then the process
 * ends by the same signal, as it would have without this. Invariant: it allocates nothing and takes no lock, as the crash
 * may have happened anywhere; snprintf of numbers and texts is not on POSIX's list of what a handler may call, but does
 * neither in the C libraries that we meet. Frames come from the compiler's unwinder, as bionic and musl have no backtrace();
 * kernels carry no tables for it, so behind a kernel there is nobody.
 */
#define _GNU_SOURCE
#include "arm_object.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>
#if defined(__APPLE__)
#include <sys/ucontext.h>
#else
#include <ucontext.h>
#endif

enum { MOST_FRAMES = 64, STACK = 1 << 16 };
typedef struct { int count; uintptr_t crash; int is_past; } walk;

static const char *program = "armillary";
static unsigned char stack[STACK]; /* of the handler: the thread's own may be full */

static void line(const char *text, int size) {
  ssize_t done = write(STDERR_FILENO, text, (size_t)size);
  (void)done; /* there is nobody to tell */
}

/* A frame, by the nearest name below its address; else as addr2line takes it: a file and a distance from its beginning. */
static void print_frame(int number, uintptr_t address) {
  char text[512];
  Dl_info info = {0};
  int64_t distance = 0;
  const char *kernel = arm_object_name_at((const void *)address, &distance);
  int is_known = kernel == NULL && dladdr((void *)address, &info) != 0 && info.dli_fname != NULL;
  const char *file = is_known ? strrchr(info.dli_fname, '/') : NULL;
  int size;
  file = file != NULL ? file + 1 : is_known ? info.dli_fname : "?";
  if (kernel != NULL) size = snprintf(text, sizeof text, "  #%d kernel %s + 0x%llx\n", number, kernel, (long long)distance);
  else if (is_known && info.dli_sname != NULL)
    size = snprintf(text, sizeof text, "  #%d %s + 0x%llx (%s)\n", number, info.dli_sname,
                    (long long)(address - (uintptr_t)info.dli_saddr), file);
  else
    size = snprintf(text, sizeof text, "  #%d %s + 0x%llx\n", number, file,
                    (long long)(address - (is_known ? (uintptr_t)info.dli_fbase : 0)));
  line(text, size < (int)sizeof text ? size : (int)sizeof text - 1);
}

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data) {
  walk *w = data;
  uintptr_t address = (uintptr_t)_Unwind_GetIP(context);
  if (address == 0 || w->count >= MOST_FRAMES) return _URC_END_OF_STACK;
  if (!w->is_past) w->is_past = address == w->crash; /* the handler's own frames come first */
  else print_frame(w->count++, address - 1);         /* inside of the call, which ends at the address */
  return _URC_NO_REASON;
}

static uintptr_t program_counter(const ucontext_t *context) {
#if defined(__APPLE__) && defined(__x86_64__)
  return (uintptr_t)context->uc_mcontext->__ss.__rip;
#elif defined(__APPLE__) && defined(__aarch64__)
  return (uintptr_t)context->uc_mcontext->__ss.__pc;
#elif defined(__x86_64__)
  return (uintptr_t)context->uc_mcontext.gregs[16]; /* REG_RIP, a name of glibc's */
#elif defined(__aarch64__)
  return (uintptr_t)context->uc_mcontext.pc;
#elif defined(__arm__)
  return (uintptr_t)context->uc_mcontext.arm_pc;
#else
  return (void)context, 0;
#endif
}

static void handle(int number, siginfo_t *info, void *context) {
  char text[256];
  walk w = {.count = 1, .crash = program_counter(context)};
  const char *name = number == SIGSEGV ? "reads or writes where no memory is" : number == SIGBUS ? "memory is not there"
                   : number == SIGILL ? "an instruction that this processor lacks" : number == SIGFPE ? "integer division"
                   : "aborted";
  int size = snprintf(text, sizeof text, "%s: signal %d (%s), address %p; called from:\n", program, number, name, info->si_addr);
  line(text, size);
  if (w.crash != 0) print_frame(0, w.crash);
  else w.is_past = 1;
  (void)_Unwind_Backtrace(visit, &w);
  signal(number, SIG_DFL);
  raise(number);
}

#ifndef __has_feature
#define __has_feature(feature) 0 /* clang's */
#endif

void arm_backtrace_on_crash(const char *name) {
  if (__has_feature(address_sanitizer)) return; /* it has a report of its own */
#ifdef __SANITIZE_ADDRESS__ /* gcc's word for the same */
  return;
#endif
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
  program = name;
  sigaltstack(&own, NULL); /* of the main thread: others' crashes are reported unless their stacks are full */
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
}
