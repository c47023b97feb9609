/* What the files of the native RPC server share. The protocol they speak: armillary/rpc/protocol.py.
 *
 * armrpc_system.c: sockets and processes. armrpc_sha256.c: SHA-256 and HMAC. armrpc_frames.c: frames and handshakes. armrpc_files.c: a session's folder.
 * armrpc_session.c: what a session does. armrpc_serve.c: a connection. armrpc_tracker.c: registration. armrpc.c: the program.
 */
#ifndef ARMRPC_H
#define ARMRPC_H

#include "arm_files.h"

#define ARMRPC_MAX_HEADER (1 << 16)
#define ARMRPC_MAX_PAYLOAD (1 << 24)
#define ARMRPC_OPEN_HEADER (1 << 12)
#define ARMRPC_CHUNK (1 << 23)
#define ARMRPC_OPEN_SECONDS 5.0
#define ARMRPC_FRAME_SECONDS 60.0
#define ARMRPC_PING_SECONDS 5.0
#define ARMRPC_SILENT_SECONDS 20.0
#define ARMRPC_NONCE 64
#define ARMRPC_TICKET 64
#define ARMRPC_NAME 257

/* ---- SHA-256 (FIPS 180-4) and HMAC (FIPS 198-1) */
typedef struct { uint32_t state[8]; uint64_t size; unsigned char block[64]; } armrpc_sha256;
typedef struct { armrpc_sha256 inner, outer; } armrpc_hmac;
void armrpc_sha256_begin(armrpc_sha256 *hash);
void armrpc_sha256_add(armrpc_sha256 *hash, const void *data, size_t size);
void armrpc_sha256_end(armrpc_sha256 *hash, unsigned char out[32]);
void armrpc_hmac_begin(armrpc_hmac *mac, const void *key, size_t size);
void armrpc_hmac_add(armrpc_hmac *mac, const void *data, size_t size);
void armrpc_hmac_end(armrpc_hmac *mac, unsigned char out[32]);
int armrpc_equal(const void *a, const void *b, size_t size); /* in a time that does not depend on where they differ */
int armrpc_random(void *out, size_t size);
void armrpc_hex(const void *data, size_t size, char *out); /* terminated */

/* ---- what systems call differently: descriptors close on exec; -1 and errno */
int armrpc_socket(int family); /* a stream that does not block */
int armrpc_take(int listening); /* the next connection */
int armrpc_pair(int pair[2]); /* messages stay whole */
void armrpc_end_with_parent(int signal_number);

/* ---- text that grows; `failed` is set when memory or `limit` ran out */
typedef struct { char *text; size_t size, capacity, limit; int failed; } armrpc_text;
void armrpc_put(armrpc_text *text, const char *format, ...) ARM_PRINTF(2, 3);
void armrpc_put_string(armrpc_text *text, const char *value); /* as a JSON string */
void armrpc_text_free(armrpc_text *text);

/* ---- frames */
typedef struct {
  int fd, sealed;
  unsigned char keys[2][32]; /* sending, receiving */
  uint64_t numbers[2];
} armrpc_peer;

typedef struct {
  char *header;
  unsigned char *payload;
  size_t header_size, payload_size;
  arm_json json; /* of the header: an object */
} armrpc_frame;

/* 0, or -1 with a message. ARMRPC_AUTH: the secrets differ. `seconds` < 0: no limit until the frame begins. */
#define ARMRPC_AUTH (-2)
int armrpc_read(armrpc_peer *peer, armrpc_frame *frame, size_t max_header, size_t max_payload, double seconds,
                arm_error *error);
int armrpc_write(armrpc_peer *peer, const char *header, const void *payload, size_t size, arm_error *error);
/* A frame goes on as it came. */
int armrpc_forward(armrpc_peer *peer, const armrpc_frame *frame, arm_error *error);
int armrpc_refuse(armrpc_peer *peer, const char *kind, const char *message, const char *hint);
void armrpc_frame_free(armrpc_frame *frame);
/* A printable text of at most `size` - 1 bytes; "" where it is missing and `needed` is 0. */
int armrpc_field(const armrpc_frame *frame, const char *key, char *out, size_t size, int needed, arm_error *error);
int armrpc_number(const armrpc_frame *frame, const char *key, int64_t low, int64_t high, int64_t *out, arm_error *error);
/* `secret` "" means none. The listening side reads what is wanted; the connecting one checks role and answer. */
int armrpc_accept(armrpc_peer *peer, const char *secret, armrpc_frame *want, arm_error *error);
int armrpc_connect(armrpc_peer *peer, const char *host, int port, const char *role, const char *secret, int insecure,
                   const char *want, arm_error *error);
int armrpc_is_loopback(const char *host);
int armrpc_peer_host(int fd, char *out, size_t size);

/* ---- a session's folder */
typedef struct armrpc_files armrpc_files;
armrpc_files *armrpc_files_open(const char *folder);
void armrpc_files_close(armrpc_files *files);
int armrpc_files_write(armrpc_files *files, const char *name, int64_t offset, const void *data, size_t size,
                       arm_error *error);
/* The descriptor of a regular file inside the folder, or -1. */
int armrpc_files_handle(armrpc_files *files, const char *name, arm_error *error);
int armrpc_files_remove(armrpc_files *files, const char *name, arm_error *error);
void armrpc_files_list(const armrpc_files *files, armrpc_text *out);
void armrpc_remove_folder(const char *folder);

/* ---- what runs where */
typedef struct {
  char key[ARMRPC_NAME], secret[1025], folder[1200]; /* the folder is made and removed with the session */
  int threads;
  double max_session, idle;
} armrpc_options;

void armrpc_session_run(int fd, const char *folder, int threads); /* the process of a session */
/* The process of a connection; `control` leads to the main process: it asks for the place, and tells how it ended. */
void armrpc_serve(int fd, int control, const armrpc_options *options);
void armrpc_info(armrpc_text *out, int threads);
/* The process that keeps the registration; see armrpc_tracker.c. */
typedef struct { const char *host, *custom_host, *secret, *key; int port, own_port, insecure, threads; } armrpc_tracker;
void armrpc_register(int control, const armrpc_tracker *tracker);
void armrpc_log(const char *format, ...) ARM_PRINTF(1, 2);
extern int armrpc_silent;

#endif
