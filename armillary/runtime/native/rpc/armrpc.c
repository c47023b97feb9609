/* armrpc: an RPC server for devices without Python.
 *
 * In: a command line. Out: sessions, one at a time, each in processes of its own; a registration at a tracker. Invariant: this
 * process reads nothing that a stranger sends; it lends the one place (a ticket is good once), and removes what sessions
 * leave. Wrong usage ends with 2, a refusal with 1. The parts: armrpc.h; the protocol: armillary/rpc/protocol.py.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arm_object.h"
#include "armrpc.h"

#define MAX_CHILDREN 64
#define MAX_STRANGERS 32

typedef enum { NONE, STRANGER, WAITING, RUNNING } state;
typedef struct { state state; pid_t pid; int control; long number; char user[ARMRPC_NAME], failure[1001]; } child;

typedef struct {
  armrpc_options options;
  const char *host, *custom_host, *secret_file, *tracker_host;
  char tracker_text[300], work_dir[1024];
  int port, port_end, insecure, tracker_port, custom_port;
  child children[MAX_CHILDREN];
  long count;
  int listening, tracker; /* the socket to the process of the registration, or -1 */
  pid_t registration;
  const char *tracker_secret;
  char ticket[ARMRPC_TICKET + 1];
} server;

int armrpc_silent;
static volatile sig_atomic_t is_over;

void armrpc_log(const char *format, ...) {
  char text[1200];
  va_list args;
  if (armrpc_silent) return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "INFO:RPCServer:%s\n", text);
}

/* ---- the command line ---- */

static int usage(FILE *stream) {
  fputs("usage: armrpc [server] [options]\n"
        "  --host=<address>        listen there (default: this machine only; everywhere with a tracker elsewhere)\n"
        "  --port=<n> --port-end=<n>   ports to try (default: 9090 to 9199; 0: any)\n"
        "  --tracker=<host>:<port> register there      --key=<name>   the name of the queue\n"
        "  --custom-addr=<host>[:<port>]   where clients find this server\n"
        "  --secret-file=<file>    the shared secret (default: ARMILLARY_RPC_SECRET, ~/.config/armillary/rpc-secret)\n"
        "  --insecure              use no secret: whoever reaches this address can run code here\n"
        "  --work-dir=<folder>     for files of sessions (default: TMPDIR, /tmp)\n"
        "  --threads=<n>           threads of a kernel (default: the CPUs of this process)\n"
        "  --max-session=<s>       longest session (default: 86400)   --idle-timeout=<s>   (default: 3600)\n"
        "  --silent                say nothing but errors\n", stream);
  return 2;
}

static const char *value_of(const char *arg, const char *name) {
  size_t length = strlen(name);
  return strncmp(arg, name, length) == 0 && arg[length] == '=' ? arg + length + 1 : NULL;
}

static int number_of(const char *text, long low, long high, int *out) {
  char *end;
  long number = strtol(text, &end, 10);
  *out = (int)number;
  return *text && *end == 0 && number >= low && number <= high ? 0 : -1;
}

static int address_of(char *text, const char **host, int *port, int needs_port) {
  char *colon = strrchr(text, ':');
  *host = text;
  if (colon == NULL) return needs_port ? -1 : 0;
  *colon = 0;
  return *text ? number_of(colon + 1, 1, 65535, port) : -1;
}

static int parse_option(server *s, char *arg) {
  static char custom[300];
  const char *v;
  int number;
  if ((v = value_of(arg, "--host"))) s->host = v;
  else if ((v = value_of(arg, "--port"))) return number_of(v, 0, 65535, &s->port);
  else if ((v = value_of(arg, "--port-end"))) return number_of(v, 0, 65536, &s->port_end);
  else if ((v = value_of(arg, "--key"))) return snprintf(s->options.key, ARMRPC_NAME, "%s", v) < ARMRPC_NAME ? 0 : -1;
  else if ((v = value_of(arg, "--tracker"))) {
    if (snprintf(s->tracker_text, sizeof s->tracker_text, "%s", v) >= (int)sizeof s->tracker_text) return -1;
    return address_of(s->tracker_text, &s->tracker_host, &s->tracker_port, 1);
  } else if ((v = value_of(arg, "--custom-addr"))) {
    if (snprintf(custom, sizeof custom, "%s", v) >= (int)sizeof custom) return -1;
    return address_of(custom, &s->custom_host, &s->custom_port, 0);
  } else if ((v = value_of(arg, "--secret-file"))) s->secret_file = v;
  else if ((v = value_of(arg, "--work-dir"))) snprintf(s->work_dir, sizeof s->work_dir, "%s", v);
  else if ((v = value_of(arg, "--threads"))) return number_of(v, 1, 1024, &s->options.threads);
  else if ((v = value_of(arg, "--max-session"))) {
    if (number_of(v, 1, 7 * 86400, &number) != 0) return -1;
    s->options.max_session = number;
  } else if ((v = value_of(arg, "--idle-timeout"))) {
    if (number_of(v, 1, 7 * 86400, &number) != 0) return -1;
    s->options.idle = number;
  } else if (strcmp(arg, "--insecure") == 0) s->insecure = 1;
  else if (strcmp(arg, "--silent") == 0) armrpc_silent = 1;
  else return -1;
  return 0;
}

static int check_secret(char *text, const char *place, arm_error *error) {
  size_t size = strlen(text);
  while (size && strchr(" \t\r\n", text[size - 1])) text[--size] = 0;
  for (size_t i = 0; i < size; i++)
    if (text[i] < 0x20 || text[i] > 0x7e) size = 0;
  return size >= 16 ? 0 : arm_fail(error, "%s: a secret is at least 16 printable ASCII characters", place);
}

static int read_secret(const char *path, char *out, size_t size, arm_error *error) {
  struct stat info;
  FILE *file = fopen(path, "r");
  size_t got = file && fstat(fileno(file), &info) == 0 ? fread(out, 1, size - 1, file) : 0;
  if (file == NULL || got == 0) {
    if (file) fclose(file);
    return arm_fail(error, "%s: the secret cannot be read", path);
  }
  out[got] = 0;
  fclose(file);
  if (info.st_mode & 077) return arm_fail(error, "%s: other users may read the secret (chmod 600)", path);
  return check_secret(out, path, error);
}

/* The secret that was named, else (off loopback, or to prove oneself at a tracker) the one of `armc rpc init`. */
static int find_secret(server *s, int named_only, char *out, size_t size, arm_error *error) {
  char path[1200];
  const char *text = getenv("ARMILLARY_RPC_SECRET"), *home = getenv("HOME"), *folder = getenv("ARMILLARY_CONFIG_DIR");
  *out = 0;
  if (s->secret_file) return read_secret(s->secret_file, out, size, error);
  if (text && *text) {
    if (snprintf(out, size, "%s", text) >= (int)size) return arm_fail(error, "ARMILLARY_RPC_SECRET is too long");
    return check_secret(out, "ARMILLARY_RPC_SECRET", error);
  }
  if (named_only || (home == NULL && folder == NULL)) return 0;
  if (folder && *folder) snprintf(path, sizeof path, "%s/rpc-secret", folder);
  else snprintf(path, sizeof path, "%s/.config/armillary/rpc-secret", home ? home : "");
  return access(path, F_OK) == 0 ? read_secret(path, out, size, error) : 0;
}

/* ---- listening ---- */

static int bound(const char *host, int port) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  char service[16];
  int one = 1;
  snprintf(service, sizeof service, "%d", port);
  if (getaddrinfo(host, service, &hints, &found) != 0) return -1;
  int fd = armrpc_socket(found->ai_family);
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (fd >= 0 && (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 128) != 0)) {
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  return fd;
}

static int listen_somewhere(server *s, arm_error *error) {
  struct sockaddr_storage address;
  socklen_t size = sizeof address;
  int end = s->port && s->port_end > s->port ? s->port_end : s->port + 1;
  s->listening = -1;
  for (int port = s->port; port < end && s->listening < 0; port++) s->listening = bound(s->host, port);
  if (s->listening < 0) return arm_fail(error, "cannot listen on %s, port %d to %d", s->host, s->port, end - 1);
  if (getsockname(s->listening, (struct sockaddr *)&address, &size) == 0)
    s->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                  : ((struct sockaddr_in *)&address)->sin_port);
  return 0;
}

/* ---- the tracker ---- */

static void tell(server *s, const armrpc_text *message) {
  if (s->tracker >= 0 && !message->failed) send(s->tracker, message->text, message->size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void tell_state(server *s, const char *op, const char *ticket, const char *user) {
  armrpc_text message = {0};
  armrpc_put(&message, "{\"op\":\"%s\",\"ticket\":\"%s\",\"user\":", op, ticket);
  armrpc_put_string(&message, user);
  armrpc_put(&message, "}");
  tell(s, &message);
  armrpc_text_free(&message);
}

static void offer(server *s) {
  unsigned char bytes[16];
  if (s->tracker < 0 || armrpc_random(bytes, sizeof bytes) != 0) return;
  armrpc_hex(bytes, sizeof bytes, s->ticket);
  tell_state(s, "free", s->ticket, "");
}

static child *running(server *s) {
  for (int i = 0; i < MAX_CHILDREN; i++)
    if (s->children[i].state == RUNNING) return &s->children[i];
  return NULL;
}

static int start_registration(server *s, const char *secret);

static void from_tracker(server *s) {
  char letter;
  ssize_t got = recv(s->tracker, &letter, 1, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) { /* the process of the registration has died */
    close(s->tracker);
    s->tracker = -1;
    *s->ticket = 0;
    waitpid(s->registration, NULL, 0);
    if (start_registration(s, s->tracker_secret) != 0) {
      fputs("armrpc: no process can be started\n", stderr);
      exit(1);
    }
    return;
  }
  if (got != 1) return;
  child *busy = running(s);
  if (letter == 'C' && busy) tell_state(s, "busy", "", busy->user);
  else if (!busy) offer(s);
}

static void close_all(server *s) {
  close(s->listening);
  if (s->tracker >= 0) close(s->tracker);
  for (int i = 0; i < MAX_CHILDREN; i++)
    if (s->children[i].state != NONE) close(s->children[i].control);
}

static int start_registration(server *s, const char *secret) {
  int pair[2];
  if (armrpc_pair(pair) != 0) return -1;
  pid_t pid = fork();
  if (pid < 0) return -1;
  if (pid == 0) {
    armrpc_tracker tracker = {s->tracker_host, s->custom_host ? s->custom_host : "", secret, s->options.key,
                              s->tracker_port, s->custom_port ? s->custom_port : s->port, s->insecure,
                              s->options.threads};
    close(pair[0]);
    close_all(s);
    armrpc_register(pair[1], &tracker);
    exit(0);
  }
  close(pair[1]);
  s->tracker = pair[0];
  s->registration = pid;
  return 0;
}

/* ---- connections ---- */

static void folder_of(const server *s, long number, char *out, size_t size) {
  snprintf(out, size, "%.1000s/armrpc-%d-%ld", s->work_dir, (int)getpid(), number);
}

static void make_room(server *s) {
  child *oldest = NULL;
  int strangers = 0, count = 0;
  for (int i = 0; i < MAX_CHILDREN; i++) {
    child *c = &s->children[i];
    count += c->state != NONE;
    if (c->state != STRANGER) continue;
    strangers++;
    if (oldest == NULL || c->number < oldest->number) oldest = c;
  }
  if (oldest && (strangers >= MAX_STRANGERS || count >= MAX_CHILDREN)) kill(oldest->pid, SIGKILL);
}

static void welcome(server *s) {
  int fd = armrpc_take(s->listening), pair[2], one = 1, at = 0;
  if (fd < 0) return;
  make_room(s);
  while (at < MAX_CHILDREN && s->children[at].state != NONE) at++;
  if (at == MAX_CHILDREN || armrpc_pair(pair) != 0) {
    close(fd);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  child *c = &s->children[at];
  memset(c, 0, sizeof *c);
  c->number = ++s->count;
  folder_of(s, c->number, s->options.folder, sizeof s->options.folder);
  c->pid = fork();
  if (c->pid == 0) {
    close(pair[0]);
    close_all(s);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    armrpc_serve(fd, pair[1], &s->options);
    exit(0);
  }
  close(fd);
  close(pair[1]);
  c->control = pair[0];
  if (c->pid < 0) close(pair[0]);
  else c->state = STRANGER;
}

static void grant(server *s, child *c) {
  c->state = RUNNING;
  tell_state(s, "busy", s->ticket, c->user);
  *s->ticket = 0;
  armrpc_log("session of %s begins", *c->user ? c->user : "somebody");
  send(c->control, "Y", 1, MSG_NOSIGNAL);
}

static void grant_next(server *s) {
  child *first = NULL;
  for (int i = 0; i < MAX_CHILDREN; i++)
    if (s->children[i].state == WAITING && (first == NULL || s->children[i].number < first->number))
      first = &s->children[i];
  if (first && running(s) == NULL) grant(s, first);
}

static void ask(server *s, child *c, const char *ticket) {
  if (s->tracker < 0) {
    c->state = WAITING;
    grant_next(s);
    return;
  }
  size_t size = strlen(s->ticket);
  if (size && strlen(ticket) == size && armrpc_equal(ticket, s->ticket, size) && running(s) == NULL) grant(s, c);
  else send(c->control, "N", 1, MSG_NOSIGNAL);
}

/* A folder may hold much: a process of its own removes it, and nobody waits. */
static void clear(server *s, const char *folder) {
  pid_t pid = is_over ? -1 : fork();
  if (pid == 0) {
    close_all(s);
    if (fork() != 0) _exit(0); /* the first one is waited for, the second is nobody's child */
    armrpc_remove_folder(folder);
    _exit(0);
  }
  if (pid > 0) waitpid(pid, NULL, 0);
  else armrpc_remove_folder(folder);
}

static void ended(server *s, child *c) {
  char folder[1200];
  int was_running = c->state == RUNNING;
  close(c->control);
  waitpid(c->pid, NULL, 0);
  c->state = NONE;
  if (!was_running) return;
  folder_of(s, c->number, folder, sizeof folder);
  clear(s, folder);
  armrpc_log("session ended%s%s", *c->failure ? ": " : "", c->failure);
  armrpc_text message = {0};
  armrpc_put(&message, "{\"op\":\"done\",\"error\":");
  armrpc_put_string(&message, c->failure);
  armrpc_put(&message, "}");
  tell(s, &message);
  armrpc_text_free(&message);
  if (s->tracker >= 0) offer(s);
  else grant_next(s);
}

static void from_child(server *s, child *c) {
  char message[1101];
  ssize_t size = recv(c->control, message, sizeof message - 1, MSG_DONTWAIT);
  if (size <= 0) {
    if (size == 0 || errno != EAGAIN) ended(s, c);
    return;
  }
  message[size] = 0;
  if (*message == 'U') snprintf(c->user, sizeof c->user, "%.256s", message + 1);
  else if (*message == 'E') snprintf(c->failure, sizeof c->failure, "%.1000s", message + 1);
  else if (*message == 'W') ask(s, c, message + 1);
}

/* What servers that were killed have left. */
static void sweep(const server *s) {
  DIR *folder = opendir(s->work_dir);
  for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
    int pid;
    long number;
    char path[1400];
    if (sscanf(entry->d_name, "armrpc-%d-%ld", &pid, &number) != 2) continue;
    if (pid != (int)getpid() && (kill((pid_t)pid, 0) == 0 || errno != ESRCH)) continue; /* ours: of one before us */
    snprintf(path, sizeof path, "%s/%s", s->work_dir, entry->d_name);
    armrpc_remove_folder(path);
  }
  if (folder) closedir(folder);
}

static void loop(server *s) {
  while (!is_over) {
    struct pollfd wanted[MAX_CHILDREN + 2];
    wanted[0] = (struct pollfd){s->listening, POLLIN, 0};
    wanted[1] = (struct pollfd){s->tracker, POLLIN, 0};
    for (int i = 0; i < MAX_CHILDREN; i++)
      wanted[i + 2] = (struct pollfd){s->children[i].state == NONE ? -1 : s->children[i].control, POLLIN, 0};
    if (poll(wanted, MAX_CHILDREN + 2, -1) <= 0) continue;
    for (int i = 0; i < MAX_CHILDREN; i++)
      if (wanted[i + 2].revents) from_child(s, &s->children[i]);
    if (wanted[1].revents) from_tracker(s);
    if (wanted[0].revents) welcome(s);
  }
  for (int i = 0; i < MAX_CHILDREN; i++) {
    if (s->children[i].state == NONE) continue;
    kill(s->children[i].pid, SIGKILL); /* its session's process dies with it */
    ended(s, &s->children[i]);
  }
}

static void stop(int number) {
  (void)number;
  is_over = 1;
}

static int prepare(server *s, arm_error *error, char *tracker_secret, size_t size) {
  const char *folder = getenv("TMPDIR");
  if (!*s->work_dir) snprintf(s->work_dir, sizeof s->work_dir, "%s", folder && *folder ? folder : "/tmp");
  char *whole = realpath(s->work_dir, NULL);
  if (whole == NULL || strlen(whole) > 1000) {
    free(whole);
    return arm_fail(error, "%s: this folder cannot be used", s->work_dir);
  }
  strcpy(s->work_dir, whole);
  free(whole);
  if (s->tracker_host && !*s->options.key) return arm_fail(error, "a server of a tracker needs --key=<name>");
  int is_near = s->tracker_host == NULL || armrpc_is_loopback(s->tracker_host);
  if (s->host == NULL) s->host = is_near ? "127.0.0.1" : "0.0.0.0";
  int is_own = armrpc_is_loopback(s->host);
  if (find_secret(s, 0, tracker_secret, size, error) != 0) return -1;
  if (s->insecure) {
    if (!is_own) armrpc_log("--insecure: whoever reaches %s can run code on this machine", s->host);
  } else if (find_secret(s, is_own, s->options.secret, sizeof s->options.secret, error) != 0) {
    return -1;
  } else if (!is_own && !*s->options.secret) {
    return arm_fail(error, "listening on %s, which others can reach, needs a secret: copy that of `armc rpc init` here, "
                           "or name one with --secret-file; --insecure goes without", s->host);
  }
  sweep(s);
  return listen_somewhere(s, error);
}

int main(int argc, char **argv) {
  static server s = {.port = 9090, .port_end = 9199, .tracker = -1, .listening = -1};
  char text[1024], secret[1025];
  arm_error error = {text, sizeof text};
  s.options.max_session = 86400;
  s.options.idle = 3600;
  s.options.threads = arm_cpu_count();
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0) return usage(stdout) * 0;
    if (i == 1 && strcmp(argv[i], "server") == 0) continue; /* as of old */
    if (strncmp(argv[i], "--tls", 5) == 0) {
      fputs("armrpc: there is no TLS in it: nobody can change messages on the way, but they can be read; put a "
            "proxy in front: python -m armillary.exec.rpc_proxy --server=HOST:PORT --tls-cert=...\n", stderr);
      return 2;
    }
    if (parse_option(&s, argv[i]) != 0) {
      fprintf(stderr, "armrpc: %s is not understood\n", argv[i]);
      return usage(stderr);
    }
  }
  signal(SIGPIPE, SIG_IGN);
  arm_backtrace_on_crash("armrpc");
  struct sigaction action = {.sa_handler = stop};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  if (prepare(&s, &error, secret, sizeof secret) != 0) {
    fprintf(stderr, "armrpc: %s\n", text);
    return 1;
  }
  s.tracker_secret = secret;
  armrpc_log("bind to %s:%d", s.host, s.port);
  if (s.tracker_host && start_registration(&s, secret) != 0) {
    fputs("armrpc: no process can be started\n", stderr);
    return 1;
  }
  loop(&s);
  return 0;
}
