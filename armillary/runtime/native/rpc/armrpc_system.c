/* What systems call differently: sockets that no other program inherits, pairs that keep messages apart, an end with the
 * parent.
 *
 * In: what socket() takes. Out: descriptors that close on exec. Invariant: on Linux the flags are set as the descriptor is
 * made, elsewhere right after, which is enough as nothing here runs another program. macOS' part is compiled in CI, not run.
 */
#define _GNU_SOURCE /* accept4 */
#include "armrpc.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/prctl.h>

int armrpc_socket(int family) { return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }
int armrpc_take(int listening) { return accept4(listening, NULL, NULL, SOCK_CLOEXEC); }
int armrpc_pair(int pair[2]) { return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair); }
void armrpc_end_with_parent(int signal_number) { prctl(PR_SET_PDEATHSIG, signal_number); }

#else
#include <pthread.h>
#include <stdint.h>
#include <sys/event.h>
#include <sys/types.h>

static int own(int fd, int flags) { /* flags: of the open file, such as O_NONBLOCK */
  if (fd < 0) return -1;
  int status = fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (status == 0) status = fcntl(fd, F_SETFL, flags);
  if (status == 0) return fd;
  close(fd);
  return -1;
}

int armrpc_socket(int family) { return own(socket(family, SOCK_STREAM, 0), O_NONBLOCK); }
int armrpc_take(int listening) { return own(accept(listening, NULL, NULL), 0); }

int armrpc_pair(int pair[2]) { /* macOS has no sequenced packets between processes; datagrams keep their order there */
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) return -1;
  if (own(pair[0], 0) >= 0 && own(pair[1], 0) >= 0) return 0;
  close(pair[0]);
  close(pair[1]);
  return -1;
}

static void *watch(void *number) {
  struct kevent wanted, event;
  int queue = kqueue();
  pid_t parent = getppid();
  EV_SET(&wanted, (uintptr_t)parent, EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0, NULL);
  if (parent != 1 && (queue < 0 || kevent(queue, &wanted, 1, &event, 1, NULL) < 0) && kill(parent, 0) == 0) return NULL;
  kill(getpid(), (int)(intptr_t)number);
  return NULL;
}

void armrpc_end_with_parent(int signal_number) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, watch, (void *)(intptr_t)signal_number) == 0) pthread_detach(thread);
}
#endif
