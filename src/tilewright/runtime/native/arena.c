/* Memory for arenas and constants: aligned for vectors, large blocks in huge pages.
 *
 * Large blocks are mapped, not taken from the heap: the alignment is exact, and releasing one gives
 * it back to the system.
 */
#define _GNU_SOURCE
#include "tilewright_runtime.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20, LARGE = 4 << 20 };

static size_t whole_pages(size_t bytes) {
  return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* Maps a huge page more than needed and gives back what lies before and after the aligned part. */
static void *map_aligned(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL; /* so that the sums below cannot wrap around */
  size_t size = whole_pages(bytes);
  char *mapped = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
  if (mapped == MAP_FAILED) return NULL;
  size_t before = (HUGE_PAGE - (uintptr_t)mapped % HUGE_PAGE) % HUGE_PAGE;
  char *memory = mapped + before;
  if (before > 0) munmap(mapped, before);
  munmap(memory + size, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
  madvise(memory, size, MADV_HUGEPAGE); /* a wish: where it is not granted, small pages do */
#endif
  return memory;
}

void *tw_allocate(size_t bytes) {
  if (bytes >= LARGE) return map_aligned(bytes);
  size_t lines = (bytes + LINE - 1) / LINE;
  return aligned_alloc(LINE, (lines > 0 ? lines : 1) * LINE);
}

void tw_release(void *memory, size_t bytes) {
  if (bytes >= LARGE) {
    munmap(memory, whole_pages(bytes));
  } else {
    free(memory);
  }
}
