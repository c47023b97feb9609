/* Relocatable objects, linked in memory (arm_object.c), and the functions that their code may call (arm_symbols.c). */
#ifndef ARM_OBJECT_H
#define ARM_OBJECT_H

#include "arm_internal.h"

typedef struct arm_object arm_object;

int arm_object_is(const char *path); /* whether the file is an object for this machine, as its header says */
arm_object *arm_object_open(const char *path, arm_error *error); /* NULL with a message */
void *arm_object_symbol(const arm_object *object, const char *name); /* NULL: it has none of that name */
void arm_object_free(arm_object *object);
/* The function of a loaded object that holds an address, and how far behind its beginning that is; NULL: none does. */
const char *arm_object_name_at(const void *address, int64_t *distance);
void arm_backtrace_on_crash(const char *program); /* in programs: a crash says where it happened (arm_backtrace.c) */

void *arm_process_symbol(const char *name); /* NULL: nothing in this process has the name */

#endif
