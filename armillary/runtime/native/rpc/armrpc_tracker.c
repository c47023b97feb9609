/* The process that keeps the registration at a tracker.
 *
 * In: messages of the main process, which go to the tracker as they are. Out: to the main process, 'C' (connected: tell the
 * state) and 'R' (the ticket is revoked: make another). Invariant: while the main process lives it is connected, or tries.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "armrpc.h"

static int from_tracker(armrpc_peer *peer, int control, arm_error *error) {
  armrpc_frame frame;
  char op[32];
  if (armrpc_read(peer, &frame, ARMRPC_MAX_HEADER, 0, ARMRPC_SILENT_SECONDS, error) != 0) return -1;
  int status = armrpc_field(&frame, "op", op, sizeof op, 1, error);
  armrpc_frame_free(&frame);
  if (status == 0 && strcmp(op, "revoke") == 0 && send(control, "R", 1, MSG_NOSIGNAL) < 0) exit(0);
  return status;
}

/* Until the connection fails; the end of the main process ends this one. */
static int carry(armrpc_peer *peer, int control, arm_error *error) {
  char message[2048];
  double ping = arm_now() + ARMRPC_PING_SECONDS, heard = arm_now();
  if (send(control, "C", 1, MSG_NOSIGNAL) < 0) exit(0);
  for (;;) {
    struct pollfd wanted[2] = {{peer->fd, POLLIN, 0}, {control, POLLIN, 0}};
    double left = ping - arm_now();
    if (left > 0) poll(wanted, 2, (int)(left * 1000) + 1);
    if (arm_now() >= ping) {
      if (armrpc_write(peer, "{\"op\":\"ping\"}", NULL, 0, error) != 0) return -1;
      ping = arm_now() + ARMRPC_PING_SECONDS;
    }
    if (wanted[0].revents) {
      if (from_tracker(peer, control, error) != 0) return -1;
      heard = arm_now();
    }
    if (arm_now() - heard > ARMRPC_SILENT_SECONDS) return arm_fail(error, "the tracker is silent");
    if (wanted[1].revents) {
      ssize_t size = recv(control, message, sizeof message - 1, MSG_DONTWAIT);
      if (size == 0) exit(0);
      if (size > 0) {
        message[size] = 0;
        if (armrpc_write(peer, message, NULL, 0, error) != 0) return -1;
      }
    }
  }
}

void armrpc_register(int control, const armrpc_tracker *tracker) {
  char text[1024], said[1024] = "";
  arm_error error = {text, sizeof text};
  double pause = 0.2;
  armrpc_end_with_parent(SIGKILL);
  for (;;) {
    armrpc_peer peer;
    armrpc_text want = {0};
    armrpc_put(&want, "{\"want\":\"serve\",\"key\":");
    armrpc_put_string(&want, tracker->key);
    armrpc_put(&want, ",\"host\":");
    armrpc_put_string(&want, tracker->custom_host);
    armrpc_put(&want, ",\"port\":%d,\"tls\":false,\"info\":", tracker->own_port);
    armrpc_info(&want, tracker->threads);
    armrpc_put(&want, "}");
    if (!want.failed && armrpc_connect(&peer, tracker->host, tracker->port, "tracker", tracker->secret,
                                       tracker->insecure, want.text, &error) == 0) {
      armrpc_log("registered with tracker %s:%d as %s", tracker->host, tracker->port, tracker->key);
      pause = 0.2;
      *said = 0;
      carry(&peer, control, &error);
      close(peer.fd);
    }
    armrpc_text_free(&want);
    if (strcmp(said, text) != 0) armrpc_log("tracker: %s", text);
    strcpy(said, text);
    char message[2048];
    while (recv(control, message, sizeof message, MSG_DONTWAIT) > 0) {} /* the state is told when it is back */
    struct pollfd wanted = {control, 0, 0};
    if (poll(&wanted, 1, (int)(pause * 1000)) > 0) exit(0); /* the main process is gone */
    pause = pause < 1 ? 2 * pause : 2;
  }
}
