// Memory of the CPU device.
#pragma once

#include <stdlib.h>
#include <dlfcn.h>
#include <sys/mman.h>

/* Large blocks are aligned and marked for huge pages: first touch costs a fraction of 4 KiB pages. */
void* wr_alloc(uint64_t bytes) {
  size_t align = bytes >= (4u << 20) ? (2u << 20) : 64;
  void* p = NULL;
  if (posix_memalign(&p, align, bytes ? bytes : 64) != 0) return NULL;
  if (align > 64) madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}
void wr_free(void* p) { free(p); }
void wr_copy(void* to, const void* from, uint64_t bytes) { memcpy(to, from, bytes); }
/* Zeros fill the rest of the target. */
void wr_copy_part(void* to, const void* from, uint64_t bytes, uint64_t size) {
  memcpy(to, from, bytes);
  memset((char*)to + bytes, 0, size - bytes);
}
/* The target is mostly memory that was never written: with huge pages its first touch takes a tenth of the time. */
void wr_copy_out(void* to, const void* from, uint64_t bytes) {
  uintptr_t start = ((uintptr_t)to + 4095) & ~(uintptr_t)4095, end = ((uintptr_t)to + bytes) & ~(uintptr_t)4095;
  if (bytes >= (4u << 20)) madvise((void*)start, end - start, MADV_HUGEPAGE);
  memcpy(to, from, bytes);
}
