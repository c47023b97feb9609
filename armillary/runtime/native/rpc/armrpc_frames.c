/* Frames, handshakes, and the text of messages.
 *
 * In: sockets. Out: frames whose header is a JSON object; messages. Invariant: sizes are checked before memory is taken,
 * every wait has an end, and of a connection with a secret nothing is looked at that has no valid tag.
 * The layout: armillary/rpc/protocol.py.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "armrpc.h"

#if defined(__APPLE__)
#define TCP_KEEPIDLE TCP_KEEPALIVE /* its name there */
#endif

#define PREFIX 16
#define TAG 32

/* ---- text ---- */

static int room(armrpc_text *text, size_t more) {
  size_t limit = text->limit ? text->limit : ARMRPC_MAX_HEADER;
  if (text->failed || more > limit || text->size + more + 1 > limit) {
    text->failed = 1;
    return -1;
  }
  if (text->size + more + 1 <= text->capacity) return 0;
  size_t capacity = 2 * (text->size + more) + 256;
  char *grown = realloc(text->text, capacity);
  if (grown == NULL) {
    text->failed = 1;
    return -1;
  }
  text->text = grown;
  text->capacity = capacity;
  return 0;
}

void armrpc_put(armrpc_text *text, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int size = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (size >= 0 && room(text, (size_t)size) == 0) {
    vsnprintf(text->text + text->size, (size_t)size + 1, format, again);
    text->size += (size_t)size;
  }
  va_end(again);
}

void armrpc_put_string(armrpc_text *text, const char *value) {
  armrpc_put(text, "\"");
  for (const char *c = value; *c; c++) {
    unsigned char u = (unsigned char)*c;
    if (u == '"' || u == '\\') armrpc_put(text, "\\%c", u);
    else if (u < 0x20 || u == 0x7f) armrpc_put(text, "\\u%04x", u);
    else if (room(text, 1) == 0) text->text[text->size++] = *c, text->text[text->size] = 0;
  }
  armrpc_put(text, "\"");
}

void armrpc_text_free(armrpc_text *text) {
  free(text->text);
  memset(text, 0, sizeof *text);
}

/* ---- bytes ---- */

static int wait_for(int fd, short events, double deadline) {
  for (;;) {
    double left = deadline < 0 ? 3600 : deadline - arm_now();
    if (left <= 0) return 0;
    struct pollfd wanted = {fd, events, 0};
    int count = poll(&wanted, 1, (int)(left * 1000) + 1);
    if (count > 0) return 1;
    if (count < 0 && errno != EINTR) return -1;
  }
}

static int read_exactly(int fd, void *out, size_t size, double deadline, arm_error *error) {
  unsigned char *p = out;
  while (size) {
    if (wait_for(fd, POLLIN, deadline) != 1) return arm_fail(error, "no message came in time");
    ssize_t got = recv(fd, p, size, MSG_DONTWAIT);
    if (got == 0) return arm_fail(error, "the connection was closed");
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return arm_fail(error, "the connection failed: %s", strerror(errno));
    p += got;
    size -= (size_t)got;
  }
  return 0;
}

static int write_exactly(int fd, const void *data, size_t size, double deadline, arm_error *error) {
  const unsigned char *p = data;
  while (size) {
    if (wait_for(fd, POLLOUT, deadline) != 1) return arm_fail(error, "the peer takes no data");
    ssize_t put = send(fd, p, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (put < 0) return arm_fail(error, "the connection failed: %s", strerror(errno));
    p += put;
    size -= (size_t)put;
  }
  return 0;
}

static void put_number(unsigned char *out, uint64_t value, int size) {
  for (int i = 0; i < size; i++) out[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_number(const unsigned char *in, int size) {
  uint64_t value = 0;
  for (int i = 0; i < size; i++) value |= (uint64_t)in[i] << (8 * i);
  return value;
}

static void tag_of(armrpc_peer *peer, int way, const unsigned char *prefix, const void *header, size_t header_size,
                   const void *payload, size_t payload_size, unsigned char out[TAG]) {
  unsigned char number[8];
  armrpc_hmac mac;
  put_number(number, peer->numbers[way]++, 8);
  armrpc_hmac_begin(&mac, peer->keys[way], 32);
  armrpc_hmac_add(&mac, number, 8);
  armrpc_hmac_add(&mac, prefix, PREFIX);
  armrpc_hmac_add(&mac, header, header_size);
  if (payload_size) armrpc_hmac_add(&mac, payload, payload_size);
  armrpc_hmac_end(&mac, out);
}

/* ---- frames ---- */

void armrpc_frame_free(armrpc_frame *frame) {
  free(frame->header);
  free(frame->payload);
  arm_json_free(&frame->json);
  memset(frame, 0, sizeof *frame);
}

static int read_body(armrpc_peer *peer, armrpc_frame *frame, const unsigned char *prefix, double deadline,
                     arm_error *error) {
  unsigned char tag[TAG], wanted[TAG];
  frame->header = malloc(frame->header_size + 1);
  frame->payload = malloc(frame->payload_size + 1);
  if (frame->header == NULL || frame->payload == NULL) return arm_fail(error, "out of memory");
  if (read_exactly(peer->fd, frame->header, frame->header_size, deadline, error) != 0 ||
      read_exactly(peer->fd, frame->payload, frame->payload_size, deadline, error) != 0)
    return -1;
  frame->header[frame->header_size] = 0;
  if (!peer->sealed) return 0;
  if (read_exactly(peer->fd, tag, TAG, deadline, error) != 0) return -1;
  tag_of(peer, 1, prefix, frame->header, frame->header_size, frame->payload, frame->payload_size, wanted);
  if (armrpc_equal(tag, wanted, TAG)) return 0;
  arm_fail(error, "the secrets of the two sides differ");
  return ARMRPC_AUTH;
}

int armrpc_read(armrpc_peer *peer, armrpc_frame *frame, size_t max_header, size_t max_payload, double seconds,
                arm_error *error) {
  unsigned char prefix[PREFIX];
  memset(frame, 0, sizeof *frame);
  double deadline = seconds < 0 ? -1 : arm_now() + seconds;
  if (read_exactly(peer->fd, prefix, PREFIX, deadline, error) != 0) return -1;
  if (memcmp(prefix, "ARM1", 4) != 0 && memcmp(prefix, "ARMS", 4) != 0)
    return arm_fail(error, "the peer does not speak this protocol");
  if (prefix[3] != (peer->sealed ? 'S' : '1')) {
    arm_fail(error, peer->sealed ? "the peer sent a message without the tag that the secret demands"
                                 : "a sealed message came where there is no secret");
    return peer->sealed ? ARMRPC_AUTH : -1;
  }
  uint64_t header = get_number(prefix + 4, 4), payload = get_number(prefix + 8, 8);
  if (header > max_header || payload > max_payload)
    return arm_fail(error, "a frame of %llu + %llu bytes is refused", (unsigned long long)header,
                    (unsigned long long)payload);
  frame->header_size = (size_t)header;
  frame->payload_size = (size_t)payload;
  double rest = arm_now() + ARMRPC_FRAME_SECONDS;
  if (deadline >= 0 && seconds <= ARMRPC_OPEN_SECONDS && deadline < rest) rest = deadline;
  int status = read_body(peer, frame, prefix, rest, error);
  if (status == 0 && (arm_json_parse(frame->header, frame->header_size, &frame->json, error) != 0 ||
                      frame->json.values[0].kind != ARM_MAP))
    status = arm_fail(error, "damaged message: its header is no JSON object");
  if (status != 0) armrpc_frame_free(frame);
  return status;
}

static int write_frame(armrpc_peer *peer, const char *header, size_t header_size, const void *payload, size_t size,
                       arm_error *error) {
  unsigned char start[PREFIX], tag[TAG];
  if (header_size > ARMRPC_MAX_HEADER || size > ARMRPC_MAX_PAYLOAD)
    return arm_fail(error, "a message of %zu + %zu bytes is too large", header_size, size);
  double deadline = arm_now() + ARMRPC_FRAME_SECONDS;
  memcpy(start, peer->sealed ? "ARMS" : "ARM1", 4);
  put_number(start + 4, header_size, 4);
  put_number(start + 8, size, 8);
  if (peer->sealed) tag_of(peer, 0, start, header, header_size, payload, size, tag);
  char *whole = malloc(PREFIX + header_size);
  if (whole == NULL) return arm_fail(error, "out of memory");
  memcpy(whole, start, PREFIX);
  memcpy(whole + PREFIX, header, header_size);
  int status = write_exactly(peer->fd, whole, PREFIX + header_size, deadline, error);
  free(whole);
  if (status == 0 && size) status = write_exactly(peer->fd, payload, size, deadline, error);
  if (status == 0 && peer->sealed) status = write_exactly(peer->fd, tag, TAG, deadline, error);
  return status;
}

int armrpc_write(armrpc_peer *peer, const char *header, const void *payload, size_t size, arm_error *error) {
  return write_frame(peer, header, strlen(header), payload, size, error);
}

int armrpc_forward(armrpc_peer *peer, const armrpc_frame *frame, arm_error *error) {
  return write_frame(peer, frame->header, frame->header_size, frame->payload, frame->payload_size, error);
}

int armrpc_refuse(armrpc_peer *peer, const char *kind, const char *message, const char *hint) {
  char text[256];
  arm_error error = {text, sizeof text};
  armrpc_text out = {0};
  armrpc_put(&out, "{\"error\":");
  armrpc_put_string(&out, message);
  armrpc_put(&out, ",\"kind\":\"%s\",\"hint\":", kind);
  armrpc_put_string(&out, hint);
  armrpc_put(&out, "}");
  int status = out.failed ? -1 : armrpc_write(peer, out.text, NULL, 0, &error);
  armrpc_text_free(&out);
  return status;
}

int armrpc_field(const armrpc_frame *frame, const char *key, char *out, size_t size, int needed, arm_error *error) {
  int32_t at = arm_json_get(&frame->json, 0, key);
  *out = 0;
  if (at < 0 && !needed) return 0;
  const char *text = at >= 0 && frame->json.values[at].kind == ARM_TEXT ? frame->json.values[at].text : NULL;
  int is_printable = text != NULL && strlen(text) < size;
  for (const char *c = text; is_printable && *c; c++) is_printable = (unsigned char)*c >= 0x20 && *c != 0x7f;
  if (!is_printable) return arm_fail(error, "%s: a printable text of at most %zu characters is expected", key, size - 1);
  strcpy(out, text);
  return 0;
}

int armrpc_number(const armrpc_frame *frame, const char *key, int64_t low, int64_t high, int64_t *out, arm_error *error) {
  int32_t at = arm_json_get(&frame->json, 0, key);
  if (arm_json_int(&frame->json, at, low, high, out) == 0) return 0;
  return arm_fail(error, "%s: an integer in [%lld, %lld] is expected", key, (long long)low, (long long)high);
}

/* ---- handshakes ---- */

static int nonce_of(const armrpc_frame *frame, char *out, arm_error *error) {
  int64_t version;
  if (armrpc_number(frame, "rpc", 1, 1, &version, error) != 0)
    return arm_fail(error, "the peer speaks another version of the protocol than 1");
  if (armrpc_field(frame, "nonce", out, ARMRPC_NONCE + 1, 1, error) != 0) return -1;
  if (strlen(out) == ARMRPC_NONCE && strspn(out, "0123456789abcdef") == ARMRPC_NONCE) return 0;
  return arm_fail(error, "damaged hello: it has no nonce of 64 hex digits");
}

static int new_nonce(char *out, arm_error *error) {
  unsigned char bytes[ARMRPC_NONCE / 2];
  if (armrpc_random(bytes, sizeof bytes) != 0) return arm_fail(error, "the system gives no random bytes");
  armrpc_hex(bytes, sizeof bytes, out);
  return 0;
}

static void seal(armrpc_peer *peer, const char *secret, const char *role, const char *client, const char *server,
                 int is_client) {
  static const char *const ways[2] = {"client", "server"};
  for (int i = 0; i < 2; i++) {
    armrpc_hmac mac;
    char text[256];
    snprintf(text, sizeof text, "armillary-rpc-1|%s|%s|%s|%s|", ways[i], role, client, server); /* no TLS: no binding */
    armrpc_hmac_begin(&mac, secret, strlen(secret));
    armrpc_hmac_add(&mac, text, strlen(text));
    armrpc_hmac_end(&mac, peer->keys[is_client ? i : 1 - i]);
  }
  peer->sealed = 1;
}

int armrpc_accept(armrpc_peer *peer, const char *secret, armrpc_frame *want, arm_error *error) {
  char client[ARMRPC_NONCE + 1], server[ARMRPC_NONCE + 1], hello[256];
  double begin = arm_now();
  int status = armrpc_read(peer, want, ARMRPC_OPEN_HEADER, 0, ARMRPC_OPEN_SECONDS, error);
  if (status != 0) return status;
  status = nonce_of(want, client, error);
  armrpc_frame_free(want);
  if (status != 0 || new_nonce(server, error) != 0) return -1;
  snprintf(hello, sizeof hello, "{\"rpc\":1,\"nonce\":\"%s\",\"role\":\"server\",\"auth\":\"%s\"}", server,
           *secret ? "hmac-sha256" : "none");
  if (armrpc_write(peer, hello, NULL, 0, error) != 0) return -1;
  if (*secret) seal(peer, secret, "server", client, server, 0);
  return armrpc_read(peer, want, ARMRPC_OPEN_HEADER, 0, ARMRPC_OPEN_SECONDS - (arm_now() - begin), error);
}

static int dial(const char *host, int port, arm_error *error) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  int status = getaddrinfo(host, service, &hints, &found), fd = -1;
  if (status != 0) return arm_fail(error, "%s: %s", host, gai_strerror(status));
  for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
    fd = armrpc_socket(at->ai_family);
    if (fd < 0) continue;
    int failed = connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS;
    socklen_t size = sizeof failed;
    if (!failed && wait_for(fd, POLLOUT, arm_now() + 10) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size);
    else failed = 1;
    if (failed) close(fd), fd = -1;
  }
  freeaddrinfo(found);
  return fd >= 0 ? fd : arm_fail(error, "%s:%d: cannot connect", host, port);
}

static int greet(armrpc_peer *peer, const char *role, const char *secret, int insecure, const char *want,
                 arm_error *error) {
  char ours[ARMRPC_NONCE + 1], theirs[ARMRPC_NONCE + 1], hello[256], text[64], host[64];
  armrpc_frame frame;
  if (new_nonce(ours, error) != 0) return -1;
  snprintf(hello, sizeof hello, "{\"rpc\":1,\"nonce\":\"%s\"}", ours);
  if (armrpc_write(peer, hello, NULL, 0, error) != 0 ||
      armrpc_read(peer, &frame, ARMRPC_OPEN_HEADER, 0, ARMRPC_OPEN_SECONDS, error) != 0)
    return -1;
  int status = nonce_of(&frame, theirs, error) != 0 || armrpc_field(&frame, "role", text, sizeof text, 1, error) != 0;
  if (!status && strcmp(text, role) != 0) status = arm_fail(error, "this is a %s, no %s", text, role);
  if (!status) status = armrpc_field(&frame, "auth", text, sizeof text, 1, error);
  armrpc_frame_free(&frame);
  if (status) return -1;
  if (strcmp(text, "hmac-sha256") == 0 && *secret) seal(peer, secret, role, ours, theirs, 1);
  else if (strcmp(text, "none") != 0) return arm_fail(error, "the %s asks for the secret, and there is none here", role);
  else if (!insecure && (armrpc_peer_host(peer->fd, host, sizeof host) != 0 || !armrpc_is_loopback(host)))
    return arm_fail(error, "the %s asks for no secret: it could be anybody (--insecure accepts it)", role);
  if (armrpc_write(peer, want, NULL, 0, error) != 0) return -1;
  status = armrpc_read(peer, &frame, ARMRPC_MAX_HEADER, 0, 10, error);
  if (status != 0) return status;
  int refused = arm_json_get(&frame.json, 0, "ok") < 0;
  if (refused) arm_fail(error, "the %s refuses: %.200s", role, frame.header);
  armrpc_frame_free(&frame);
  return refused ? -1 : 0;
}

int armrpc_connect(armrpc_peer *peer, const char *host, int port, const char *role, const char *secret, int insecure,
                   const char *want, arm_error *error) {
  int one = 1, idle = 10, interval = 5, count = 3;
  memset(peer, 0, sizeof *peer);
  peer->fd = dial(host, port, error);
  if (peer->fd < 0) return -1;
  setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(peer->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(peer->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(peer->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(peer->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  if (greet(peer, role, secret, insecure, want, error) == 0) return 0;
  close(peer->fd);
  return -1;
}

int armrpc_is_loopback(const char *host) {
  struct in_addr address;
  if (strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0) return 1;
  if (strncmp(host, "::ffff:", 7) == 0) host += 7;
  return inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

int armrpc_peer_host(int fd, char *out, size_t size) {
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  if (getpeername(fd, (struct sockaddr *)&address, &length) != 0) return -1;
  return getnameinfo((struct sockaddr *)&address, length, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST) == 0 ? 0 : -1;
}
