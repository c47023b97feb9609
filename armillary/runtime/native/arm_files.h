/* Files: whole files in memory, .npy arrays, .npz archives, package tars, and packages of any form. */
#ifndef ARM_FILES_H
#define ARM_FILES_H

#include <stdio.h>

#include "arm_internal.h"

typedef struct { unsigned char *data; size_t size; } arm_blob;

/* A named tensor that owns its memory (when `owned` is set) and its shape. */
typedef struct {
  char name[256];
  arm_tensor tensor;
  int64_t shape[ARM_MAX_NDIM];
  arm_blob owned;
} arm_array;

int arm_file_read(const char *path, arm_blob *out, arm_error *error);
/* A file in the address space, read as it is looked at; its descriptor stays open in `file`. */
int arm_file_map(const char *path, arm_blob *out, int *file, arm_error *error);
void arm_file_unmap(arm_blob *blob, int file);
void arm_blob_free(arm_blob *blob);

/* A file on its way: `part` is written and becomes `target`; "" where a device is written to. */
typedef struct { FILE *stream; char target[4096], part[4096]; } arm_writer;
int arm_write_open(arm_writer *w, const char *path, int mode, arm_error *error); /* `mode` as the umask leaves it */
int arm_write_close(arm_writer *w, const char *path, int is_whole, arm_error *error);
int arm_file_write(const char *path, const void *data, size_t size, int mode, arm_error *error);

/* A view of npy bytes; the data stays in `bytes`. */
int arm_npy_parse(const unsigned char *bytes, size_t size, const char *where, arm_array *out, arm_error *error);
/* The npy header of a tensor (version 1.0); returns its length, 0 if it does not fit. */
size_t arm_npy_header(const arm_tensor *tensor, char *out, size_t size);

typedef int (*arm_member_visit)(void *context, const char *name, const unsigned char *data, size_t size,
                                arm_error *error);
int arm_zip_read(const unsigned char *bytes, size_t size, arm_member_visit visit, void *context, arm_error *error);
int arm_npz_write(const char *path, const arm_array *arrays, int count, arm_error *error);

/* A member of a package, inside the tar's bytes, and the CRC-32 that the package records for it (packages of old: none). */
typedef struct { const unsigned char *data; size_t size; int has_crc; uint32_t crc; } arm_member;
enum { ARM_MOD_CODE, ARM_MOD_JSON, ARM_MOD_PARAMS, ARM_MEMBERS };
/* Find the members; all but mod.params, which is read later and checked then, have their checksums verified. */
int arm_tar_read(const unsigned char *bytes, size_t size, arm_member members[ARM_MEMBERS], arm_error *error);
/* What the text of mod.crc32 says of each member. */
int arm_member_sums(arm_member members[ARM_MEMBERS], const unsigned char *text, size_t size, arm_error *error);
int arm_member_check(const arm_member *member, const char *name, uint32_t crc, arm_error *error);

/* The steps of arm_package_open and of arm_package_create_graph, for who times them (arm_package.c). */
#define ARM_PACKAGE_DEVICES 8
#define ARM_TEMPORARY "/tmp"
arm_package *arm_package_locate(const char *path, arm_error *error); /* NULL with a message */
int arm_package_link(arm_package *package, arm_error *error);
int arm_package_bare_graph(arm_package *package, const arm_device *devices, int num_devices, arm_pool *pool,
                           arm_graph **out, arm_error *error);
int arm_package_load_params(arm_package *package, arm_graph *graph, arm_error *error);

#endif
