// Shared memory in C: one region per process (a memory file, so that nothing is left behind when the process is killed),
// an allocator over it, mapping the regions of other processes of the same user, and copies of boxes between strided
// arrays. The file is sealed: no process can shrink it below a mapping, which would end the process that reads there.
// Its last page holds a random nonce that identifies it. Knows nothing of groups.
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  uint64_t at, bytes;
  int used;
} arena_block;
static struct {
  char* base;
  uint64_t bytes;
  int fd;
  arena_block* blocks; /* in address order, without gaps */
  long count, room;
  uint64_t used;
} arena = {.fd = -1};

static const uint64_t arena_align = 4096, huge_page = 2u << 20;
enum { NONCE = 16 };
static const int arena_seals = 1 | 2 | 4;                     /* F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW */
static const int get_seals = 1024 + 10, add_seals = 1024 + 9; /* F_GET_SEALS, F_ADD_SEALS */

/* Maps a memory file at an address that is aligned for huge pages; MAP_FAILED on failure. */
static char* map_aligned(int fd, uint64_t bytes, int protection) {
  char* room = mmap(NULL, bytes + huge_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return room;
  char* base = (char*)(((uintptr_t)room + huge_page - 1) / huge_page * huge_page);
  if (base > room) munmap(room, base - room);
  munmap(base + bytes, room + huge_page - base);
  return mmap(base, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
}

/*
 * Large pages for a new block. Most systems give shared memory none by themselves, and small ones cost a fault for every
 * 4 KiB and a miss in the translation buffer for every row of a matrix; asking for them one by one works from Linux 6.1 on.
 */
static uint64_t huge_pages;
static void use_huge_pages(char* from, uint64_t bytes) {
  static int refused;
  const int collapse = 25; /* MADV_COLLAPSE */
  if (refused) return;
  for (uint64_t at = 0; at + huge_page <= bytes; at += huge_page) {
    /* The kernel skips an extent without any page. */
    ((volatile char*)from)[at] = 0;
    if (madvise(from + at, huge_page, collapse) == 0) huge_pages++;
    else if (errno == EINVAL && huge_pages == 0) {
      refused = 1;
      return;
    } else if (errno == ENOMEM) return;
  }
}
uint64_t wg_huge_pages(void) { return huge_pages; }

/* Reserves address space; pages exist when they are touched. 0, or errno. */
int wg_arena_open(uint64_t bytes) {
  if (arena.base) return 0;
  int fd = (int)syscall(SYS_memfd_create, "weft", 1u | 2u /* close on exec, allow seals */);
  if (fd < 0) return errno;
  bytes = bytes / huge_page * huge_page;
  if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, add_seals, arena_seals) != 0) {
    int e = errno;
    close(fd);
    return e;
  }
  char* base = map_aligned(fd, bytes, PROT_READ | PROT_WRITE);
  if (base == MAP_FAILED) {
    int e = errno;
    close(fd);
    return e;
  }
  if (syscall(SYS_getrandom, base + bytes - arena_align, NONCE, 0) != NONCE) {
    munmap(base, bytes);
    close(fd);
    return EIO;
  }
  madvise(base, bytes, MADV_HUGEPAGE);
  madvise(base, bytes, MADV_DONTFORK);
  arena.room = 64;
  arena.blocks = malloc(arena.room * sizeof *arena.blocks);
  arena.blocks[0] = (arena_block){0, bytes - arena_align, 0};
  arena.count = 1;
  arena.base = base;
  arena.bytes = bytes;
  arena.fd = fd;
  return 0;
}
uint64_t wg_arena_base(void) { return (uint64_t)(uintptr_t)arena.base; }
uint64_t wg_arena_bytes(void) { return arena.bytes; }
uint64_t wg_arena_used(void) { return arena.used; }

static int in_arena(const void* p) {
  return arena.base && (const char*)p >= arena.base && (const char*)p < arena.base + arena.bytes;
}

static uint64_t round_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

/* Room for more blocks in the list; 0 when there is no memory for it. */
static int more_blocks(long count) {
  if (arena.count + count <= arena.room) return 1;
  arena_block* more = realloc(arena.blocks, 2 * arena.room * sizeof *more);
  if (!more) return 0;
  arena.blocks = more;
  arena.room *= 2;
  return 1;
}
/* Cuts a block in two; the second part begins so many bytes after the first. */
static void cut_block(long i, uint64_t bytes) {
  memmove(arena.blocks + i + 2, arena.blocks + i + 1, (arena.count - i - 1) * sizeof *arena.blocks);
  arena.blocks[i + 1] = (arena_block){arena.blocks[i].at + bytes, arena.blocks[i].bytes - bytes, 0};
  arena.blocks[i].bytes = bytes;
  arena.count++;
}

/* Address of a block, or 0 when nothing fits. */
uint64_t wg_alloc(uint64_t bytes) {
  if (!arena.base || bytes > arena.bytes) return 0; /* rounding up must not wrap around */
  bytes = bytes ? round_up(bytes, arena_align) : arena_align;
  /* Large blocks begin with a large page, and end with one where at least half of it is used. */
  const int large = bytes >= huge_page;
  const uint64_t align = large ? huge_page : arena_align;
  if (large && bytes % huge_page >= huge_page / 2) bytes = round_up(bytes, huge_page);
  long best = -1;
  for (long i = 0; i < arena.count; i++) {
    const arena_block* b = arena.blocks + i;
    if (b->used || b->bytes < bytes || (best >= 0 && b->bytes >= arena.blocks[best].bytes)) continue;
    if (round_up(b->at, align) - b->at + bytes <= b->bytes) best = i;
  }
  if (best < 0 || !more_blocks(2)) return 0;
  const uint64_t skipped = round_up(arena.blocks[best].at, align) - arena.blocks[best].at;
  if (skipped > 0) cut_block(best++, skipped);
  if (arena.blocks[best].bytes > bytes) cut_block(best, bytes);
  arena.blocks[best].used = 1;
  arena.used += bytes;
  char* made = arena.base + arena.blocks[best].at;
  if (large) use_huge_pages(made, bytes);
  return (uint64_t)(uintptr_t)made;
}

/* Frees a block and returns its pages to the system. 0 when the address is not that of a block. */
int wg_free(uint64_t address) {
  if (!in_arena((void*)(uintptr_t)address)) return 0;
  uint64_t at = address - (uint64_t)(uintptr_t)arena.base;
  long lo = 0, hi = arena.count - 1;
  while (lo < hi) {
    long mid = (lo + hi + 1) / 2;
    if (arena.blocks[mid].at <= at) lo = mid;
    else hi = mid - 1;
  }
  arena_block* b = arena.blocks + lo;
  if (b->at != at || !b->used) return 0;
  b->used = 0;
  arena.used -= b->bytes;
  madvise(arena.base + b->at, b->bytes, MADV_REMOVE);
  if (lo + 1 < arena.count && !b[1].used) {
    b->bytes += b[1].bytes;
    memmove(b + 1, b + 2, (arena.count - lo - 2) * sizeof *b);
    arena.count--;
  }
  if (lo > 0 && !b[-1].used) {
    b[-1].bytes += b->bytes;
    memmove(b, b + 1, (arena.count - lo - 1) * sizeof *b);
    arena.count--;
  }
  return 1;
}

/* The number of the call that runs and of the one that is to end (Interruption in device/contract.ts); NULL where calls do not end so. */
static const volatile int32_t* stop_flags;
void wg_stop_flags(uint64_t address) { stop_flags = (const volatile int32_t*)(uintptr_t)address; }
static int call_ends(void) { return stop_flags && stop_flags[0] == stop_flags[1]; }

/* When the process with this id was started, in ticks since boot; 0 when there is none. The state is its letter in ps. */
static uint64_t process_start(int pid, char* state) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  long n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char* p = strrchr(text, ')');
  if (!p) return 0;
  if (state) *state = p[2];
  p += 2;
  for (int field = 3; field < 22; field++) {
    p = strchr(p, ' ');
    if (!p) return 0;
    p++;
  }
  return strtoull(p, NULL, 10);
}
/* Whether the process with this id is the one that was started at that time, and is not a zombie. */
static int process_alive(int pid, uint64_t start, int* stopped) {
  char state = 0;
  uint64_t now = process_start(pid, &state);
  if (stopped) *stopped = state == 'T' || state == 't';
  return now != 0 && now == start && state != 'Z' && state != 'X';
}
uint64_t wg_process_start(int pid) { return process_start(pid, NULL); }
/* 0 gone, 1 alive, 2 stopped */
int wg_process_state(int pid, uint64_t start) {
  int stopped = 0;
  return process_alive(pid, start, &stopped) ? (stopped ? 2 : 1) : 0;
}

static const char* arena_nonce(const char* base, uint64_t bytes) { return base + bytes - arena_align; }

/* Maps a memory file as an arena and closes it; 0 unless it is a sealed one, of at least two pages. *bytes: its size. */
static char* map_arena(int fd, uint64_t* bytes, int protection) {
  struct stat st;
  const int sealed = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (fcntl(fd, get_seals) & arena_seals) == arena_seals;
  char* base = MAP_FAILED;
  if (sealed && st.st_size >= (off_t)(2 * arena_align) && st.st_size % arena_align == 0)
    base = map_aligned(fd, *bytes = (uint64_t)st.st_size, protection);
  close(fd);
  if (base == MAP_FAILED) return NULL;
  madvise(base, *bytes, MADV_DONTFORK);
  return base;
}

/*
 * Maps the arena of a member of a group; 0 unless it has this size and this nonce. Process ids of two containers may be
 * equal, nonces are not.
 */
static uint64_t map_member(int pid, int fd, uint64_t bytes, const char* nonce) {
  if (memcmp(nonce, arena_nonce(arena.base, arena.bytes), NONCE) == 0)
    return bytes == arena.bytes ? (uint64_t)(uintptr_t)arena.base : 0;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  int own = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (own < 0) return 0;
  uint64_t size = 0;
  char* base = map_arena(own, &size, PROT_READ | PROT_WRITE);
  if (!base) return 0;
  if (size == bytes && memcmp(nonce, arena_nonce(base, size), NONCE) == 0) return (uint64_t)(uintptr_t)base;
  munmap(base, size);
  return 0;
}

/*
 * Exchange of arenas between a client and a worker: each passes its file to the other over a Unix datagram socket. The
 * kernel states who sent it, so that no number from a message is ever opened, and a file that arrives is of this host.
 * Every user of the host sees the name of the socket. A message therefore begins with a secret of its receiver, and the kernel
 * drops others before they take up room.
 */
enum { SECRET = 16, TICKET = SECRET + 32 };
static struct {
  int fd;
  char name[64];
  unsigned char secret[SECRET];
} share = {.fd = -1};

/* Lets only messages in that have the right size and begin with the secret. */
static void share_filter(int fd) {
  struct sock_filter code[4 + 2 * SECRET / 4] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TICKET, 0, 2 * SECRET / 4 + 1),
  };
  int n = 2;
  for (int i = 0; i < SECRET; i += 4) {
    const unsigned char* s = share.secret + i;
    uint32_t word = (uint32_t)s[0] << 24 | (uint32_t)s[1] << 16 | (uint32_t)s[2] << 8 | s[3];
    code[n] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, i);
    code[n + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word, 0, (uint8_t)(2 * SECRET / 4 + 1 - n));
    n += 2;
  }
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, TICKET);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
  struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
  /* Where filters are not allowed, others can fill the socket; then memory is not shared. */
  (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static socklen_t share_address(struct sockaddr_un* address, const char* name) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  size_t n = strnlen(name, sizeof share.name - 1);
  memcpy(address->sun_path + 1, name, n); /* the abstract namespace: nothing stays behind in a file system */
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

/* Opens this process's socket. name: at least 96 bytes, for its name and secret. 0, or errno. */
int wg_share_open(char* name) {
  if (share.fd < 0) {
    unsigned char random[16];
    if (syscall(SYS_getrandom, random, sizeof random, 0) != sizeof random) return EIO;
    if (syscall(SYS_getrandom, share.secret, SECRET, 0) != SECRET) return EIO;
    int n = snprintf(share.name, sizeof share.name, "weft-");
    for (int i = 0; i < 16; i++) n += snprintf(share.name + n, sizeof share.name - n, "%02x", random[i]);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0) return errno;
    struct sockaddr_un address;
    socklen_t length = share_address(&address, share.name);
    share_filter(fd);
    if (bind(fd, (struct sockaddr*)&address, length) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
      int e = errno;
      close(fd);
      return e;
    }
    share.fd = fd;
  }
  int n = snprintf(name, 96, "%s.", share.name);
  for (int i = 0; i < SECRET; i++) n += snprintf(name + n, 96 - (size_t)n, "%02x", share.secret[i]);
  return 0;
}

/*
 * Sends the receiver's secret and a ticket, with this process's arena or without: the latter announces this socket, and the kernel
 * states its user. 0, or errno.
 */
int wg_share_send(const char* to, const uint8_t* ticket, int with_arena) {
  struct sockaddr_un address;
  struct iovec data = {(void*)ticket, TICKET};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct msghdr message = {&address, share_address(&address, to), &data, 1, NULL, 0, 0};
  if (with_arena) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control.room;
    struct cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &arena.fd, sizeof(int));
  }
  return sendmsg(share.fd, &message, MSG_NOSIGNAL) == TICKET ? 0 : errno ? errno : EIO;
}

/*
 * Receives one arena or announcement; who: process, user, file, in this order; from: 64 bytes, for the name of the sender's socket.
 * The file is -1 when the message brought none, and -2 when it was not a ticket. 1 when there was a message, 0 when there is none.
 */
int wg_share_receive(uint8_t* ticket, int32_t* who, char* from) {
  struct sockaddr_un address = {0};
  struct iovec data = {ticket, TICKET};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
  } control = {0};
  struct msghdr message = {&address, sizeof address, &data, 1, &control, sizeof control.room, 0};
  long n = recvmsg(share.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return 0;
  int fd = -1;
  struct ucred sender = {0, (uid_t)-1, (gid_t)-1};
  for (struct cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET) continue;
    if (head->cmsg_type == SCM_CREDENTIALS) memcpy(&sender, CMSG_DATA(head), sizeof sender);
    if (head->cmsg_type == SCM_RIGHTS && fd < 0) memcpy(&fd, CMSG_DATA(head), sizeof fd);
  }
  if (n != TICKET) {
    if (fd >= 0) close(fd);
    fd = -2;
  }
  /* An abstract name begins with a zero. */
  memset(from, 0, 64);
  if (message.msg_namelen > offsetof(struct sockaddr_un, sun_path) + 1)
    memcpy(from, address.sun_path + 1, strnlen(address.sun_path + 1, 63));
  who[0] = sender.pid;
  who[1] = (int32_t)sender.uid;
  who[2] = fd;
  return 1;
}
void wg_share_discard(int fd) {
  if (fd >= 0) close(fd);
}
/* Maps a received arena, to read from it; 0 unless it is sealed. *bytes: what may be read, without the page of the nonce. */
uint64_t wg_share_map(int fd, uint64_t* bytes) {
  uint64_t size = 0;
  char* base = map_arena(fd, &size, PROT_READ);
  *bytes = base ? size : 0;
  return (uint64_t)(uintptr_t)base;
}
void wg_unmap(uint64_t base, uint64_t bytes) {
  if (base && (char*)(uintptr_t)base != arena.base) munmap((void*)(uintptr_t)base, bytes);
}

/* Copies a box between two strided arrays; sizes in elements, strides and offsets in bytes, the last axis innermost. */
#define MAX_DIMS 12
static void copy_box(char* to, const int64_t* to_strides, const char* from, const int64_t* from_strides,
                     const int64_t* sizes, int nd, int64_t element) {
  if (nd < 0 || nd > MAX_DIMS || element <= 0) return; /* callers check this too; it protects the arrays below */
  int64_t size[MAX_DIMS], ts[MAX_DIMS], fs[MAX_DIMS], run = element;
  int d = 0;
  for (int i = 0; i < nd; i++) {
    if (sizes[i] <= 0) return;
    if (sizes[i] == 1) continue;
    size[d] = sizes[i];
    ts[d] = to_strides[i];
    fs[d] = from_strides[i];
    d++;
  }
  while (d > 0 && ts[d - 1] == run && fs[d - 1] == run) run *= size[--d];
  if (d == 0) {
    memcpy(to, from, run);
    return;
  }
  int64_t at[MAX_DIMS] = {0};
  for (;;) {
    int64_t n = size[d - 1], a = ts[d - 1], b = fs[d - 1];
    if (run == 4)
      for (int64_t i = 0; i < n; i++) memcpy(to + i * a, from + i * b, 4);
    else if (run == 8)
      for (int64_t i = 0; i < n; i++) memcpy(to + i * a, from + i * b, 8);
    else
      for (int64_t i = 0; i < n; i++) memcpy(to + i * a, from + i * b, run);
    int axis = d - 2;
    while (axis >= 0) {
      to += ts[axis];
      from += fs[axis];
      if (++at[axis] < size[axis]) break;
      to -= ts[axis] * size[axis];
      from -= fs[axis] * size[axis];
      at[axis--] = 0;
    }
    if (axis < 0) return;
  }
}
/* The same with addresses, for processes that have mapped another arena. */
void wg_copy_box(uint64_t to, const int64_t* to_strides, uint64_t from, const int64_t* from_strides,
                 const int64_t* sizes, int nd, int64_t element) {
  copy_box((char*)(uintptr_t)to, to_strides, (const char*)(uintptr_t)from, from_strides, sizes, nd, element);
}
/* The target is mostly memory that was never written: with huge pages its first touch takes a tenth of the time. */
static void prefer_huge_pages(char* to, int64_t bytes) {
  uintptr_t from = round_up((uintptr_t)to, arena_align), end = ((uintptr_t)to + bytes) / arena_align * arena_align;
  if (bytes >= (int64_t)(2 * huge_page)) madvise((void*)from, end - from, MADV_HUGEPAGE);
}
void wg_copy_box_out(uint8_t* to, int64_t to_offset, const int64_t* to_strides, uint64_t from,
                     const int64_t* from_strides, const int64_t* sizes, int nd, int64_t element) {
  if (nd > 0) prefer_huge_pages((char*)to + to_offset, sizes[0] * to_strides[0]);
  copy_box((char*)to + to_offset, to_strides, (const char*)(uintptr_t)from, from_strides, sizes, nd, element);
}
void wg_copy_in(uint64_t to, const uint8_t* from, uint64_t bytes) { memcpy((void*)(uintptr_t)to, from, bytes); }
void wg_copy_out(uint8_t* to, uint64_t from, uint64_t bytes) {
  prefer_huge_pages((char*)to, (int64_t)bytes);
  memcpy(to, (void*)(uintptr_t)from, bytes);
}
