/* Packages: a tar, the folder it unpacks to, or one library that holds everything; graphs with their parameters set.
 *
 * In: a path. Out: a module, graph JSON, and graphs ready for their inputs. Invariant: damage ends with a message that
 * names the path, and nothing is left behind. Parameters are read from the file once: later graphs on the same devices
 * take those that the first has loaded (arm_share.c). Threads: graphs may be made from any, one after another.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arm_files.h"

struct arm_package {
  arm_blob tar, json_file;
  const char *json;
  size_t json_size;
  int tar_handle, params_handle; /* open files, or -1 */
  int64_t params_offset;
  arm_member params;                                /* its data is not looked at here: the graph reads it from the file */
  char path[4096], library[4200], folder[4096];     /* the folder that a tar lies in */
  int temporary;                                    /* the library is a copy that goes once it is loaded */
  arm_module *module;
  arm_weights *weights; /* of the first graph */
  arm_device weights_devices[ARM_PACKAGE_DEVICES];
  int num_weights_devices;
  pthread_mutex_t lock;
};

/* Say which file a message is about. */
static int about(const char *path, int status, arm_error *error) {
  char text[1024];
  if (status == 0) return 0;
  snprintf(text, sizeof text, "%s", error->text);
  return arm_fail(error, "%s: %s", path, text);
}

static int extract(arm_package *p, const arm_member *library, arm_error *error) {
  const char *folder = getenv("TMPDIR");
  snprintf(p->library, sizeof p->library, "%s/armillary-XXXXXX", folder && *folder ? folder : ARM_TEMPORARY);
  int handle = mkstemp(p->library);
  if (handle < 0) return arm_fail(error, "%s: a temporary file cannot be made (TMPDIR names the folder)", p->library);
  p->temporary = 1;
  ssize_t written = 0;
  for (size_t done = 0; done < library->size && written >= 0; done += (size_t)written)
    written = write(handle, library->data + done, library->size - done);
  close(handle);
  if (written >= 0) return 0;
  return arm_fail(error, "%s: cannot be written (TMPDIR names the folder)", p->library);
}

static int read_tar(arm_package *p, arm_error *error) {
  arm_member members[ARM_MEMBERS];
  const char *slash = strrchr(p->path, '/');
  snprintf(p->folder, sizeof p->folder, "%.*s", slash ? (int)(slash - p->path) : 1, slash ? p->path : ".");
  if (arm_file_map(p->path, &p->tar, &p->tar_handle, error) != 0) return -1;
  if (about(p->path, arm_tar_read(p->tar.data, p->tar.size, members, error), error) != 0) return -1;
  p->json = (const char *)members[ARM_MOD_JSON].data;
  p->json_size = members[ARM_MOD_JSON].size;
  p->params = members[ARM_MOD_PARAMS];
  if (p->json != NULL) {
    p->params_offset = p->params.data - p->tar.data;
    p->params_handle = p->tar_handle;
  }
  return extract(p, &members[ARM_MOD_CODE], error);
}

static int has_suffix(const char *text, const char *suffix) {
  size_t a = strlen(text), b = strlen(suffix);
  return a >= b && strcmp(text + a - b, suffix) == 0;
}

/* The checksums of an unpacked package: of library and graph here, of the parameters when they are read. */
static int check_folder(arm_package *p, arm_error *error) {
  char path[4200];
  arm_blob sums, library;
  arm_member members[ARM_MEMBERS] = {{0}};
  struct stat info;
  snprintf(path, sizeof path, "%s/mod.crc32", p->path);
  if (stat(path, &info) != 0) return 0; /* a folder of old */
  if (arm_file_read(path, &sums, error) != 0) return -1;
  int status = arm_member_sums(members, sums.data, sums.size, error);
  arm_blob_free(&sums);
  if (status != 0 || arm_file_read(p->library, &library, error) != 0) return -1;
  uint32_t crc = arm_crc32(0, library.data, library.size);
  status = arm_member_check(&members[ARM_MOD_CODE], strrchr(p->library, '/') + 1, crc, error);
  arm_blob_free(&library);
  p->params.has_crc = 1;
  p->params.crc = members[ARM_MOD_PARAMS].crc;
  if (status != 0) return -1;
  return arm_member_check(&members[ARM_MOD_JSON], "mod.json", arm_crc32(0, p->json_file.data, p->json_file.size), error);
}

static int read_folder(arm_package *p, arm_error *error) {
  char path[4200];
  struct stat info;
  snprintf(p->library, sizeof p->library, "%s/mod.so", p->path);
  if (stat(p->library, &info) != 0) snprintf(p->library, sizeof p->library, "%s/mod.o", p->path);
  snprintf(path, sizeof path, "%s/mod.json", p->path);
  if (arm_file_read(path, &p->json_file, error) != 0) return -1;
  if (about(p->path, check_folder(p, error), error) != 0) return -1;
  snprintf(path, sizeof path, "%s/mod.params", p->path);
  p->params_handle = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (p->params_handle < 0 || fstat(p->params_handle, &info) != 0 || !S_ISREG(info.st_mode))
    return arm_fail(error, "%s: cannot be opened, or is not a regular file", path);
  p->params.size = (size_t)info.st_size;
  p->json = (const char *)p->json_file.data;
  p->json_size = p->json_file.size;
  return 0;
}

static arm_package *new_package(arm_error *error) {
  arm_package *p = arm_zalloc(1, sizeof *p);
  if (p == NULL) return arm_fail(error, "out of memory"), NULL;
  p->tar_handle = p->params_handle = -1;
  pthread_mutex_init(&p->lock, NULL);
  return p;
}

arm_package *arm_package_locate(const char *path, arm_error *error) {
  struct stat info;
  arm_package *p = new_package(error);
  if (p == NULL) return NULL;
  int status = 0;
  if (stat(path, &info) != 0) status = arm_fail(error, "%s: there is no such file or folder", path);
  else if (strlen(path) > 4000) status = arm_fail(error, "the path of the package is too long");
  if (status == 0) {
    snprintf(p->path, sizeof p->path, "%s", path);
    if (S_ISDIR(info.st_mode)) status = read_folder(p, error);
    else if (has_suffix(path, ".tar")) status = read_tar(p, error);
    else snprintf(p->library, sizeof p->library, "%s", path);
  }
  if (status == 0) return p;
  arm_package_close(p);
  return NULL;
}

static void forget_copy(arm_package *p) {
  if (p->temporary) unlink(p->library);
  p->temporary = 0;
}

int arm_package_link(arm_package *p, arm_error *error) {
  int is_copy = p->temporary;
  int status = arm_module_open(p->library, &p->module, error->text, error->size);
  if (status == 0 && is_copy) status = arm_module_set_folder(p->module, p->folder, error->text, error->size);
  forget_copy(p);
  if (status != 0) return -1;
  if (p->json == NULL && !is_copy) p->json = arm_module_graph_json(p->module, &p->json_size);
  return 0;
}

int arm_package_open(const char *path, arm_package **out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  *out = arm_package_locate(path, &error);
  if (*out == NULL) return -1;
  if (arm_package_link(*out, &error) == 0) return 0;
  arm_package_close(*out);
  *out = NULL;
  return -1;
}

int arm_package_system(const char *network, arm_package **out, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  arm_package *p = new_package(&error);
  *out = NULL;
  if (p == NULL) return -1;
  snprintf(p->path, sizeof p->path, "the system library");
  if (arm_module_system(network, &p->module, err, err_size) != 0) return arm_package_close(p), -1;
  p->json = arm_module_graph_json(p->module, &p->json_size);
  *out = p;
  return 0;
}

void arm_package_close(arm_package *p) {
  if (p == NULL) return;
  arm_weights_release(p->weights);
  arm_module_release(p->module);
  forget_copy(p);
  arm_blob_free(&p->json_file);
  if (p->params_handle >= 0 && p->params_handle != p->tar_handle) close(p->params_handle);
  arm_file_unmap(&p->tar, p->tar_handle);
  pthread_mutex_destroy(&p->lock);
  free(p);
}

arm_module *arm_package_module(const arm_package *p) { return p->module; }

const char *arm_package_graph_json(const arm_package *p, size_t *size) {
  *size = p->json == NULL ? 0 : p->json_size;
  return p->json;
}

int arm_package_bare_graph(arm_package *p, const arm_device *devices, int num_devices, arm_pool *pool, arm_graph **out,
                           arm_error *error) {
  if (p->json == NULL)
    return arm_fail(error, "%s: it holds functions and no graph; give the folder or the tar of a network", p->path);
  for (int i = 0; i < num_devices; i++)
    if (arm_device_open(devices[i], error->text, error->size) != 0) return -1;
  return arm_graph_create_over(p->json, p->json_size, p->module, devices, num_devices, pool, out, error->text, error->size);
}

/* Of the whole file, where reading it ended early. */
static int sum_of_params(const arm_package *p, uint32_t *crc) {
  unsigned char piece[4096];
  *crc = 0;
  for (size_t done = 0; done < p->params.size;) {
    size_t left = p->params.size - done;
    ssize_t got = pread(p->params_handle, piece, left < sizeof piece ? left : sizeof piece,
                        (off_t)(p->params_offset + (int64_t)done));
    if (got <= 0) return -1;
    *crc = arm_crc32(*crc, piece, (size_t)got);
    done += (size_t)got;
  }
  return 0;
}

static int read_params(const arm_package *p, arm_graph *graph, arm_error *error) {
  int count = 0;
  uint32_t crc = 0;
  if (p->params_handle < 0) return arm_graph_load_embedded(graph, &count, error->text, error->size);
  int status = arm_graph_read_params(graph, p->params_handle, p->params_offset, (int64_t)p->params.size, &count, &crc,
                                     error->text, error->size);
  if (status != 0 && (!p->params.has_crc || sum_of_params(p, &crc) != 0)) return -1;
  return arm_member_check(&p->params, "mod.params", crc, error) != 0 ? -1 : status;
}

int arm_package_load_params(arm_package *p, arm_graph *graph, arm_error *error) {
  return about(p->path, read_params(p, graph, error), error);
}

static int is_same_devices(const arm_package *p, const arm_device *devices, int num_devices) {
  if (p->num_weights_devices != num_devices) return 0;
  for (int i = 0; i < num_devices; i++)
    if (p->weights_devices[i].type != devices[i].type || p->weights_devices[i].id != devices[i].id) return 0;
  return 1;
}

/* With the lock held. */
static int set_params(arm_package *p, const arm_device *devices, int num_devices, arm_graph *graph, arm_error *error) {
  if (p->weights != NULL && is_same_devices(p, devices, num_devices))
    return arm_graph_adopt(graph, p->weights, error->text, error->size);
  if (arm_package_load_params(p, graph, error) != 0) return -1;
  if (p->weights != NULL || num_devices > ARM_PACKAGE_DEVICES) return 0;
  if (arm_graph_load(graph, error->text, error->size) != 0) return -1;
  p->weights = arm_graph_publish(graph); /* none where a parameter is missing: each graph is given it by the caller */
  memcpy(p->weights_devices, devices, sizeof *devices * (size_t)num_devices);
  p->num_weights_devices = num_devices;
  return 0;
}

int arm_package_create_graph(arm_package *p, const arm_device *devices, int num_devices, arm_pool *pool, arm_graph **out,
                             char *err, size_t err_size) {
  arm_error error = {err, err_size};
  *out = NULL;
  if (arm_package_bare_graph(p, devices, num_devices, pool, out, &error) != 0) return -1;
  pthread_mutex_lock(&p->lock);
  int status = set_params(p, devices, num_devices, *out, &error);
  pthread_mutex_unlock(&p->lock);
  if (status == 0) return 0;
  arm_graph_destroy(*out);
  *out = NULL;
  return -1;
}
