/* The process of a connection: proves the client, asks for the place, runs the session in a process of its own.
 *
 * In: an accepted socket, and a socket to the main process. Out: a session. Invariant: it ends with the client, at its
 * deadline or when its process dies; then the process group is killed. Messages to the main process
 * are a letter and a text: 'W' (wants the place; the text is the ticket), 'U' (the user), 'E' (ended; why).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "armrpc.h"

#define WEEK_MS ((int64_t)7 * 86400 * 1000)

typedef struct { pid_t pid; armrpc_peer peer; } worker;

static void say(int control, char letter, const char *text) {
  char message[1100];
  int size = snprintf(message, sizeof message, "%c%.1000s", letter, text);
  if (send(control, message, (size_t)size, MSG_NOSIGNAL) < 0) armrpc_log("the main process is gone");
}

static void confine(void) {
  struct rlimit none = {0, 0}, file = {(rlim_t)1 << 33, (rlim_t)1 << 33};
  armrpc_end_with_parent(SIGKILL);
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_FSIZE, &file);
}

static int start(worker *w, const armrpc_options *options, int fd, int control, arm_error *error) {
  int pair[2];
  if (mkdir(options->folder, 0700) != 0) return arm_fail(error, "%s: %s", options->folder, strerror(errno));
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || (w->pid = fork()) < 0)
    return arm_fail(error, "a process for the session cannot be started: %s", strerror(errno));
  if (w->pid == 0) {
    setsid();
    confine();
    signal(SIGTERM, SIG_DFL);
    close(pair[0]);
    close(fd);
    close(control);
    if (chdir(options->folder) == 0) armrpc_session_run(pair[1], options->folder, options->threads);
    exit(0);
  }
  close(pair[1]);
  w->peer = (armrpc_peer){.fd = pair[0]};
  return 0;
}

static void epitaph(worker *w, char *out, size_t size) {
  int status = 0;
  if (waitpid(w->pid, &status, 0) != w->pid) status = 0;
  const char *names[32] = {[SIGSEGV] = "SIGSEGV", [SIGBUS] = "SIGBUS", [SIGFPE] = "SIGFPE", [SIGILL] = "SIGILL",
                           [SIGABRT] = "SIGABRT", [SIGKILL] = "SIGKILL"};
  int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (number > 0 && number < 32 && names[number])
    snprintf(out, size, "the session's process was killed by %s: the kernel is at fault", names[number]);
  else if (number) snprintf(out, size, "the session's process was killed by signal %d: the kernel is at fault", number);
  else snprintf(out, size, "the session's process ended with code %d", WEXITSTATUS(status));
  w->pid = 0;
}

/* 1: the worker answers; 0: time is over; -1: the client is gone. */
static int await_worker(int client, int fd, double deadline) {
  int watch_client = 1;
  for (;;) {
    double left = deadline - arm_now();
    struct pollfd wanted[2] = {{fd, POLLIN, 0}, {client, watch_client ? POLLIN : 0, 0}};
    if (left <= 0) return 0;
    int count = poll(wanted, 2, left > 3600 ? 3600000 : (int)(left * 1000) + 1);
    if (count < 0 && errno != EINTR) return -1;
    if (count <= 0) continue;
    if (wanted[0].revents) return 1;
    char byte;
    ssize_t got = recv(client, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return -1;
    if (got > 0) watch_client = 0; /* it sent its next request early */
  }
}

static int expired(armrpc_peer *client, double seconds, char *told, size_t size) {
  snprintf(told, size, "Your %gs session has expired", seconds);
  armrpc_refuse(client, "RPCSessionTimeoutError", told,
                "pass a longer session_timeout, or look for a kernel that does not end");
  return -1;
}

static int one_request(armrpc_peer *client, worker *w, double deadline, double seconds, double idle, char *told,
                       size_t size) {
  char text[1024];
  arm_error error = {text, sizeof text};
  armrpc_frame frame;
  double left = deadline - arm_now();
  int status = armrpc_read(client, &frame, ARMRPC_MAX_HEADER, ARMRPC_MAX_PAYLOAD, left < idle ? left : idle, &error);
  if (status != 0) return arm_now() >= deadline ? expired(client, seconds, told, size) : -1;
  status = armrpc_forward(&w->peer, &frame, &error);
  armrpc_frame_free(&frame);
  int ready = status == 0 ? await_worker(client->fd, w->peer.fd, deadline) : 1;
  if (ready == 0) return expired(client, seconds, told, size);
  if (ready < 0) {
    snprintf(told, size, "the client went away during a request");
    return -1;
  }
  if (armrpc_read(&w->peer, &frame, ARMRPC_MAX_HEADER, ARMRPC_MAX_PAYLOAD, ARMRPC_FRAME_SECONDS, &error) != 0) {
    epitaph(w, told, size);
    armrpc_refuse(client, "ExecutionError", told, "");
    return -1;
  }
  status = armrpc_forward(client, &frame, &error);
  armrpc_frame_free(&frame);
  return status;
}

static void run(armrpc_peer *client, int control, const armrpc_options *options, int64_t milliseconds) {
  char told[1024] = "";
  arm_error error = {told, sizeof told};
  worker w = {0};
  double seconds = milliseconds ? (double)milliseconds / 1000 : options->max_session;
  if (seconds > options->max_session) seconds = options->max_session;
  double deadline = arm_now() + seconds;
  if (start(&w, options, client->fd, control, &error) != 0) {
    armrpc_refuse(client, "RPCError", told, "");
  } else {
    armrpc_text hello = {0};
    armrpc_put(&hello, "{\"ok\":");
    armrpc_info(&hello, options->threads);
    armrpc_put(&hello, "}");
    int status = armrpc_write(client, hello.failed ? "{}" : hello.text, NULL, 0, &error);
    armrpc_text_free(&hello);
    told[0] = 0;
    while (status == 0) status = one_request(client, &w, deadline, seconds, options->idle, told, sizeof told);
  }
  if (w.pid > 0) {
    kill(-w.pid, SIGKILL);
    kill(w.pid, SIGKILL);
    waitpid(w.pid, NULL, 0);
  }
  say(control, 'E', told);
}

/* The main process answers 'Y' or 'N'; the client may go away before. */
static int is_granted(int control, int client) {
  char letter = 0;
  if (await_worker(client, control, arm_now() + (double)WEEK_MS / 1000) != 1) return 0;
  return recv(control, &letter, 1, 0) == 1 && letter == 'Y';
}

void armrpc_serve(int fd, int control, const armrpc_options *options) {
  char text[1024] = "", want[32], key[ARMRPC_NAME], ticket[ARMRPC_TICKET + 1], user[ARMRPC_NAME];
  arm_error error = {text, sizeof text};
  armrpc_peer client = {.fd = fd};
  armrpc_frame frame;
  int64_t milliseconds = 0;
  armrpc_end_with_parent(SIGTERM);
  int status = armrpc_accept(&client, options->secret, &frame, &error);
  if (status != 0) {
    if (status == ARMRPC_AUTH) armrpc_log("a connection was refused: %s", text);
    client.sealed = client.sealed && status != ARMRPC_AUTH;
    armrpc_refuse(&client, status == ARMRPC_AUTH ? "AuthError" : "RPCError", text, "");
    return;
  }
  status = armrpc_field(&frame, "want", want, sizeof want, 1, &error) != 0 ||
           armrpc_field(&frame, "key", key, sizeof key, 0, &error) != 0 ||
           armrpc_field(&frame, "ticket", ticket, sizeof ticket, 0, &error) != 0 ||
           armrpc_field(&frame, "user", user, sizeof user, 0, &error) != 0 ||
           (arm_json_get(&frame.json, 0, "session_ms") >= 0 &&
            armrpc_number(&frame, "session_ms", 0, WEEK_MS, &milliseconds, &error) != 0);
  armrpc_frame_free(&frame);
  if (!status && strcmp(want, "session") != 0) status = arm_fail(&error, "a server has no '%s'", want);
  if (!status && *key && strcmp(key, options->key) != 0)
    status = arm_fail(&error, "this server's key is '%s', not '%s'", options->key, key);
  if (!status) {
    say(control, 'U', user);
    say(control, 'W', ticket);
    if (!is_granted(control, fd))
      status = arm_fail(&error, *ticket ? "the ticket is not valid (any more)" : "this server is given out by its tracker");
  }
  if (status) armrpc_refuse(&client, "RPCError", text, "");
  else run(&client, control, options, milliseconds);
}
