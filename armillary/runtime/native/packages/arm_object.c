/* Objects (.o) linked in memory where they are loaded, so that neither the host nor the device needs a linker.
 *
 * In: a relocatable 64-bit ELF object for x86-64 or AArch64, and what the process offers. Out: addresses of its symbols.
 * Invariant: an object is read as bytes of anybody's: whatever points outside of it, or is unknown here (another relocation, thread-local
 * data, constructors), is refused before any of it can run; code is never writable.
 * The relocations are those of armillary/codegen/object/elf_machines.py, which writes libraries of the same objects.
 * Sources: System V ABI, AMD64 supplement; ELF for the Arm 64-bit Architecture (AAELF64).
 */
#define _GNU_SOURCE
#include "arm_object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__) && defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif
#define STUB 16
#define LARGEST ((uint64_t)1 << 26) /* bytes of an image: a call reaches 128 MB on AArch64 */
#define UNPLACED UINT64_MAX

typedef struct { const char *name; const void *address; } symbol;
struct arm_object {
  unsigned char *base;
  size_t size;
  symbol *symbols; /* that others see, by name; their names are in `names` */
  size_t count;
  char *names;
  arm_object *next; /* of all that are loaded, for who asks what an address is of */
};
static arm_object *loaded;
static pthread_mutex_t loaded_lock = PTHREAD_MUTEX_INITIALIZER; /* of who changes the list */

/* An object while it is read. Stubs and slots have one row for each of its symbols. */
typedef struct {
  const unsigned char *data;
  uint64_t size;
  const Elf64_Shdr *sections;
  uint64_t *places; /* of sections, in the image */
  const Elf64_Sym *table;
  uint64_t *addresses; /* of symbols */
  uint32_t num_sections, num_symbols, symtab;
  uint64_t stubs, slots; /* places */
  uint64_t ends[3];      /* of code, constants, data, in this order */
  unsigned char *base;
  const char *path;
} image;

typedef enum { CODE, CONSTANTS, DATA } group;

static int damaged(const image *m, arm_error *error) {
  return arm_fail(error, "%s: not an object of compiled functions, or a damaged one", m->path);
}

static int unknown(const image *m, arm_error *error, const char *what) {
  return arm_fail(error, "%s: the object has %s, which cannot be linked here; export a shared library (.so)", m->path, what);
}

static int fits(const image *m, uint64_t offset, uint64_t size) { return size <= m->size && offset <= m->size - size; }

/* A text of a table of strings, which ends inside of it; NULL otherwise. */
static const char *text_at(const image *m, uint32_t section, uint64_t offset) {
  if (section >= m->num_sections || m->sections[section].sh_type != SHT_STRTAB) return NULL;
  const Elf64_Shdr *table = &m->sections[section];
  if (!fits(m, table->sh_offset, table->sh_size) || offset >= table->sh_size) return NULL;
  const char *text = (const char *)m->data + table->sh_offset + offset;
  return memchr(text, 0, table->sh_size - offset) == NULL ? NULL : text;
}

/* Nothing unwinds through kernels. */
static int is_loaded(const image *m, const Elf64_Shdr *section) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)m->data;
  const char *name = text_at(m, head->e_shstrndx, section->sh_name);
  return (section->sh_flags & SHF_ALLOC) && name != NULL && strcmp(name, ".eh_frame") != 0;
}

static group group_of(const Elf64_Shdr *section) {
  if (section->sh_flags & SHF_EXECINSTR) return CODE;
  return section->sh_flags & SHF_WRITE ? DATA : CONSTANTS;
}

static int read_header(image *m, arm_error *error) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)m->data;
  if (head->e_shentsize != sizeof(Elf64_Shdr) || head->e_shnum == 0 || head->e_shoff % 8 ||
      !fits(m, head->e_shoff, (uint64_t)head->e_shnum * sizeof(Elf64_Shdr)))
    return damaged(m, error);
  m->sections = (const Elf64_Shdr *)(m->data + head->e_shoff);
  m->num_sections = head->e_shnum;
  for (uint32_t i = 0; i < m->num_sections; i++) {
    const Elf64_Shdr *s = &m->sections[i];
    if (s->sh_type == SHT_SYMTAB) m->symtab = i;
    if (s->sh_type == SHT_REL) return unknown(m, error, "relocations without addends");
    if (!is_loaded(m, s)) continue;
    if (s->sh_flags & SHF_TLS) return unknown(m, error, "thread-local data");
    if (s->sh_type == SHT_INIT_ARRAY || s->sh_type == SHT_FINI_ARRAY || s->sh_type == SHT_PREINIT_ARRAY)
      return unknown(m, error, "constructors");
    if (s->sh_size > LARGEST || s->sh_addralign > 4096 || (s->sh_addralign & (s->sh_addralign - 1)) ||
        (s->sh_type != SHT_NOBITS && !fits(m, s->sh_offset, s->sh_size)))
      return damaged(m, error);
  }
  const Elf64_Shdr *t = &m->sections[m->symtab];
  if (m->symtab == 0 || t->sh_entsize != sizeof(Elf64_Sym) || t->sh_offset % 8 || !fits(m, t->sh_offset, t->sh_size) ||
      t->sh_size / sizeof(Elf64_Sym) > (uint64_t)ARM_MAX_ITEMS)
    return damaged(m, error);
  m->table = (const Elf64_Sym *)(m->data + t->sh_offset);
  m->num_symbols = (uint32_t)(t->sh_size / sizeof(Elf64_Sym));
  return 0;
}

static uint64_t up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

/* Groups begin at pages: code with its stubs, constants with the slots, data. */
static int lay_out(image *m, arm_error *error) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = 0;
  m->places = malloc(m->num_sections * sizeof *m->places);
  m->addresses = arm_zalloc(m->num_symbols, sizeof *m->addresses);
  if (m->places == NULL || m->addresses == NULL) return arm_fail(error, "out of memory");
  for (uint32_t i = 0; i < m->num_sections; i++) m->places[i] = UNPLACED;
  for (group g = CODE; g <= DATA; g++) {
    for (uint32_t i = 0; i < m->num_sections; i++) {
      const Elf64_Shdr *s = &m->sections[i];
      if (!is_loaded(m, s) || group_of(s) != g) continue;
      m->places[i] = at = up(at, s->sh_addralign > 16 ? s->sh_addralign : 16);
      at += s->sh_size;
      if (at > LARGEST) return unknown(m, error, "more than 64 MB of code and constants");
    }
    at = up(at, STUB);
    if (g == CODE) m->stubs = at, at += (uint64_t)STUB * m->num_symbols;
    if (g == CONSTANTS) m->slots = at, at += (uint64_t)8 * m->num_symbols;
    m->ends[g] = at = up(at + 1, page); /* a text that a symbol points to ends inside */
  }
  return 0;
}

/* ---- symbols ---- */

static int define(image *m, uint32_t i, arm_error *error) {
  const Elf64_Sym *s = &m->table[i];
  uint32_t where = s->st_shndx;
  if (where == SHN_UNDEF) {
    const char *name = text_at(m, m->sections[m->symtab].sh_link, s->st_name);
    if (i == 0 || (name != NULL && *name == 0)) return 0;
    if (name == NULL) return damaged(m, error);
    m->addresses[i] = (uint64_t)(uintptr_t)arm_process_symbol(name);
    if (m->addresses[i] != 0 || ELF64_ST_BIND(s->st_info) == STB_WEAK) return 0;
    return arm_fail(error, "%s: the code calls %.100s, which is not in this process; load its library first", m->path, name);
  }
  if (ELF64_ST_TYPE(s->st_info) == STT_FILE || where == SHN_ABS) return 0;
  if (ELF64_ST_TYPE(s->st_info) == STT_TLS || where >= m->num_sections) return unknown(m, error, "common or thread-local data");
  if (m->places[where] == UNPLACED) return 0;
  if (s->st_value > m->sections[where].sh_size) return damaged(m, error);
  m->addresses[i] = (uint64_t)(uintptr_t)m->base + m->places[where] + s->st_value;
  return 0;
}

static void put(void *at, const void *value, size_t size) { memcpy(at, value, size); }

#if defined(__aarch64__)
static uint32_t patched(uint32_t word, uint64_t value, int bits, int at) {
  uint32_t mask = (uint32_t)(((uint64_t)1 << bits) - 1);
  return (word & ~(mask << at)) | (((uint32_t)value & mask) << at);
}
#endif

static int is_far(int64_t value, int bits) {
  return value < -((int64_t)1 << (bits - 1)) || value >= (int64_t)1 << (bits - 1);
}

/* A row of slots holds the symbol's address; a row of stubs jumps to where the slot says. */
static void write_row(image *m, uint32_t i) {
  unsigned char *stub = m->base + m->stubs + (uint64_t)STUB * i, *slot = m->base + m->slots + (uint64_t)8 * i;
  put(slot, &m->addresses[i], 8);
#if defined(__x86_64__)
  static const unsigned char jump[] = {0xff, 0x25};
  int32_t distance = (int32_t)(slot - (stub + 6));
  put(stub, jump, 2);
  put(stub + 2, &distance, 4);
#else
  uint64_t place = (uint64_t)(uintptr_t)stub, value = (uint64_t)(uintptr_t)slot, pages = (value >> 12) - (place >> 12);
  uint32_t code[4] = {patched(patched(0x90000010, pages, 2, 29), pages >> 2, 19, 5),
                      patched(0xF9400211, (value & 0xFFF) >> 3, 12, 10), 0xD61F0220, 0xD503201F};
  put(stub, code, sizeof code); /* adrp x16, slot; ldr x17, [x16, slot]; br x17; nop */
#endif
}

/* ---- relocations ---- */

typedef enum { VIA_SYMBOL, VIA_CALL, VIA_SLOT, ABSOLUTE, UNKNOWN } via;
typedef struct { via by; int size; } kind;

/* What a relocation wants: the symbol, a stub where that is another's, its slot, or its address as it is. */
static kind kind_of(uint32_t type) {
#if defined(__x86_64__)
  switch (type) {
  case R_X86_64_64: return (kind){ABSOLUTE, 8};
  case R_X86_64_PC32: return (kind){VIA_SYMBOL, 4};
  case R_X86_64_PLT32: return (kind){VIA_CALL, 4};
  case R_X86_64_GOTPCREL: case R_X86_64_GOTPCRELX: case R_X86_64_REX_GOTPCRELX: return (kind){VIA_SLOT, 4};
  case R_X86_64_PC64: return (kind){VIA_SYMBOL, 8};
  default: return (kind){UNKNOWN, 0};
  }
#else
  switch (type) {
  case 257: return (kind){ABSOLUTE, 8};
  case 260: return (kind){VIA_SYMBOL, 8};
  case 282: case 283: case 314: return (kind){VIA_CALL, 4};
  case 311: case 312: return (kind){VIA_SLOT, 4};
  case 261: case 273: case 274: case 275: case 276: case 277: case 278: case 279: case 280: case 284: case 285: case 286:
  case 299: return (kind){VIA_SYMBOL, 4};
  default: return (kind){UNKNOWN, 0};
  }
#endif
}

#if defined(__aarch64__)
/* The bits of an access of 1 << scale bytes at an offset in its page of 4096 bytes; -1: the address is odd. */
static int low(unsigned char *at, uint32_t word, uint64_t value, int scale) {
  if (value & (((uint64_t)1 << scale) - 1)) return -1;
  word = patched(word, (value & 0xFFF) >> scale, 12, 10);
  put(at, &word, 4);
  return 0;
}

static int branch(unsigned char *at, uint32_t word, int64_t distance, int bits, int first) {
  if (is_far(distance, bits + 2) || distance & 3) return -1;
  word = patched(word, (uint64_t)(distance >> 2), bits, first);
  put(at, &word, 4);
  return 0;
}

static int to_pages(unsigned char *at, uint32_t word, int64_t distance) {
  if (is_far(distance, 21)) return -1;
  word = patched(patched(word, (uint64_t)distance, 2, 29), (uint64_t)(distance >> 2), 19, 5);
  put(at, &word, 4);
  return 0;
}
#endif

/* Write what a relocation asks for; -1: it does not fit. */
static int apply(unsigned char *at, uint32_t type, uint64_t value) {
  int64_t distance = (int64_t)(value - (uint64_t)(uintptr_t)at);
#if defined(__x86_64__)
  if (type == R_X86_64_64) return put(at, &value, 8), 0;
  if (type == R_X86_64_PC64) return put(at, &distance, 8), 0;
  int32_t near = (int32_t)distance;
  return is_far(distance, 32) ? -1 : (put(at, &near, 4), 0);
#else
  uint32_t word;
  int32_t near = (int32_t)distance;
  memcpy(&word, at, 4);
  switch (type) {
  case 257: return put(at, &value, 8), 0;
  case 260: return put(at, &distance, 8), 0;
  case 261: case 314: return is_far(distance, 32) ? -1 : (put(at, &near, 4), 0);
  case 273: case 280: return branch(at, word, distance, 19, 5);
  case 279: return branch(at, word, distance, 14, 5);
  case 282: case 283: return branch(at, word, distance, 26, 0);
  case 274: return to_pages(at, word, distance);
  case 275: case 276: case 311: return to_pages(at, word, (int64_t)((value >> 12) - ((uint64_t)(uintptr_t)at >> 12)));
  case 277: case 278: return low(at, word, value, 0);
  case 284: return low(at, word, value, 1);
  case 285: return low(at, word, value, 2);
  case 286: case 312: return low(at, word, value, 3);
  default: return low(at, word, value, 4);
  }
#endif
}

static int relocate(image *m, uint32_t target, const Elf64_Rela *row, arm_error *error) {
  uint32_t type = ELF64_R_TYPE(row->r_info), index = (uint32_t)ELF64_R_SYM(row->r_info);
  kind k = kind_of(type);
  char what[64];
  snprintf(what, sizeof what, "a relocation of type %u", (unsigned)type);
  if (k.by == UNKNOWN) return unknown(m, error, what);
  const Elf64_Shdr *section = &m->sections[target];
  if (index >= m->num_symbols || section->sh_size < (uint64_t)k.size || section->sh_type == SHT_NOBITS ||
      row->r_offset > section->sh_size - (uint64_t)k.size)
    return damaged(m, error);
  uint32_t where = m->table[index].st_shndx;
  if (where != SHN_UNDEF && (where >= m->num_sections || m->places[where] == UNPLACED))
    return unknown(m, error, "a relocation against what is not loaded");
  uint64_t value = m->addresses[index];
  if (k.by == VIA_SLOT) value = (uint64_t)(uintptr_t)m->base + m->slots + (uint64_t)8 * index;
  if (k.by == VIA_CALL && where == SHN_UNDEF) value = (uint64_t)(uintptr_t)m->base + m->stubs + (uint64_t)STUB * index;
  if (apply(m->base + m->places[target] + row->r_offset, type, value + (uint64_t)row->r_addend) == 0) return 0;
  return unknown(m, error, "a distance that does not fit its instruction");
}

static int relocate_all(image *m, arm_error *error) {
  for (uint32_t i = 0; i < m->num_sections; i++) {
    const Elf64_Shdr *s = &m->sections[i];
    if (s->sh_type != SHT_RELA || s->sh_info >= m->num_sections || m->places[s->sh_info] == UNPLACED) continue;
    if (s->sh_link != m->symtab || s->sh_entsize != sizeof(Elf64_Rela) || s->sh_offset % 8 ||
        !fits(m, s->sh_offset, s->sh_size))
      return damaged(m, error);
    const Elf64_Rela *rows = (const Elf64_Rela *)(m->data + s->sh_offset);
    for (uint64_t k = 0; k < s->sh_size / sizeof *rows; k++)
      if (relocate(m, s->sh_info, &rows[k], error) != 0) return -1;
  }
  return 0;
}

/* ---- memory ---- */

static int fill(image *m, arm_error *error) {
  uint64_t size = m->ends[DATA];
  if (size == 0) return damaged(m, error);
  m->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m->base == MAP_FAILED) return m->base = NULL, arm_fail(error, "%s: out of memory", m->path);
  for (uint32_t i = 0; i < m->num_sections; i++)
    if (m->places[i] != UNPLACED && m->sections[i].sh_type != SHT_NOBITS)
      memcpy(m->base + m->places[i], m->data + m->sections[i].sh_offset, m->sections[i].sh_size);
  for (uint32_t i = 0; i < m->num_symbols; i++)
    if (define(m, i, error) != 0) return -1;
  for (uint32_t i = 0; i < m->num_symbols; i++) write_row(m, i);
  return relocate_all(m, error);
}

/* Code is executable and no longer writable, constants are constant. */
static int seal(image *m, arm_error *error) {
  __builtin___clear_cache((char *)m->base, (char *)m->base + m->ends[CODE]);
  if (mprotect(m->base, m->ends[CODE], PROT_READ | PROT_EXEC) == 0 &&
      mprotect(m->base + m->ends[CODE], m->ends[CONSTANTS] - m->ends[CODE], PROT_READ) == 0)
    return 0;
  return arm_fail(error, "%s: the system allows no code in memory; export a shared library (.so)", m->path);
}

static int by_name(const void *a, const void *b) { return strcmp(((const symbol *)a)->name, ((const symbol *)b)->name); }

static int list_symbols(const image *m, arm_object *object, arm_error *error) {
  uint32_t link = m->sections[m->symtab].sh_link;
  const Elf64_Shdr *strings = &m->sections[link < m->num_sections ? link : 0];
  object->symbols = malloc((m->num_symbols + (size_t)1) * sizeof *object->symbols);
  object->names = fits(m, strings->sh_offset, strings->sh_size) ? malloc(strings->sh_size + 1) : NULL;
  if (object->symbols == NULL || object->names == NULL) return arm_fail(error, "out of memory");
  memcpy(object->names, m->data + strings->sh_offset, strings->sh_size);
  for (uint32_t i = 0; i < m->num_symbols; i++) {
    const Elf64_Sym *s = &m->table[i];
    const char *name = text_at(m, m->sections[m->symtab].sh_link, s->st_name);
    if (ELF64_ST_BIND(s->st_info) == STB_LOCAL || s->st_shndx == SHN_UNDEF || m->addresses[i] == 0) continue;
    if (name == NULL) return damaged(m, error);
    object->symbols[object->count++] =
        (symbol){object->names + (name - ((const char *)m->data + strings->sh_offset)), (void *)(uintptr_t)m->addresses[i]};
  }
  qsort(object->symbols, object->count, sizeof *object->symbols, by_name);
  return 0;
}

static int link_image(image *m, arm_object *object, arm_error *error) {
  int status = read_header(m, error);
  if (status == 0) status = lay_out(m, error);
  if (status == 0) status = fill(m, error);
  object->base = m->base;
  object->size = m->base == NULL ? 0 : m->ends[DATA];
  if (status == 0) status = list_symbols(m, object, error);
  if (status == 0) status = seal(m, error);
  free(m->places);
  free(m->addresses);
  return status;
}

int arm_object_is(const char *path) {
  Elf64_Ehdr head = {0};
  FILE *file = fopen(path, "rb");
  size_t got = file == NULL ? 0 : fread(&head, 1, sizeof head, file);
  if (file != NULL) fclose(file);
  return got == sizeof head && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_type == ET_REL &&
         head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_ident[EI_DATA] == ELFDATA2LSB && head.e_machine == MACHINE;
}

arm_object *arm_object_open(const char *path, arm_error *error) {
  struct stat info;
  image m = {.path = path};
  int file = open(path, O_RDONLY | O_CLOEXEC), status = -1;
  arm_object *object = arm_zalloc(1, sizeof *object);
  if (file >= 0 && fstat(file, &info) == 0 && info.st_size >= (off_t)sizeof(Elf64_Ehdr)) {
    m.size = (uint64_t)info.st_size;
    void *data = mmap(NULL, m.size, PROT_READ, MAP_PRIVATE, file, 0);
    m.data = data == MAP_FAILED ? NULL : data;
  }
  if (file >= 0) close(file);
  if (object == NULL || m.data == NULL) arm_fail(error, "%s: cannot be read", path);
  else status = link_image(&m, object, error);
  if (m.data != NULL) munmap((void *)m.data, m.size);
  if (status != 0) {
    arm_object_free(object);
    return NULL;
  }
  pthread_mutex_lock(&loaded_lock);
  object->next = loaded;
  loaded = object;
  pthread_mutex_unlock(&loaded_lock);
  return object;
}

void *arm_object_symbol(const arm_object *object, const char *name) {
  symbol wanted = {name, NULL};
  const symbol *found = bsearch(&wanted, object->symbols, object->count, sizeof wanted, by_name);
  return found == NULL ? NULL : (void *)found->address;
}

/* Without the lock: it is asked when the process has crashed, maybe while it held it. */
const char *arm_object_name_at(const void *address, int64_t *distance) {
  const char *at = address, *name = NULL;
  for (const arm_object *o = loaded; o != NULL; o = o->next) {
    if (at < (const char *)o->base || at >= (const char *)o->base + o->size) continue;
    for (size_t i = 0; i < o->count; i++) {
      int64_t behind = at - (const char *)o->symbols[i].address;
      if (behind >= 0 && (name == NULL || behind < *distance)) *distance = behind, name = o->symbols[i].name;
    }
  }
  return name;
}

void arm_object_free(arm_object *object) {
  if (object == NULL) return;
  pthread_mutex_lock(&loaded_lock);
  for (arm_object **o = &loaded; *o != NULL; o = &(*o)->next)
    if (*o == object) {
      *o = object->next;
      break;
    }
  pthread_mutex_unlock(&loaded_lock);
  if (object->base != NULL) munmap(object->base, object->size);
  free(object->symbols);
  free(object->names);
  free(object);
}

#else /* other machines load shared libraries only: no object is one of theirs */
struct arm_object { int unused; };
int arm_object_is(const char *path) { return (void)path, 0; }
arm_object *arm_object_open(const char *path, arm_error *error) {
  arm_fail(error, "%s: objects are linked on x86-64 and AArch64 only; export a shared library (.so)", path);
  return NULL;
}
void *arm_object_symbol(const arm_object *object, const char *name) { return (void)object, (void)name, NULL; }
void arm_object_free(arm_object *object) { free(object); }
const char *arm_object_name_at(const void *address, int64_t *distance) { return (void)address, (void)distance, NULL; }
#endif
