// The hand-written C that sizes from messages reach, under the address and undefined-behavior sanitizers: a program of its own
// that calls it with sizes that lie. It must refuse them, or do as told within its arrays.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { findCompiler } from "../../cpu/compiler.js";
import { runtimeUnits } from "../../cpu/native-units.js";
import { groupSource } from "./library.js";

const folder = mkdtempSync(join(tmpdir(), "weft-sanitize-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const flags = [
  "-std=gnu11",
  "-O1",
  "-g",
  "-w",
  "-fopenmp",
  "-fsanitize=address,undefined",
  "-fno-sanitize-recover=all",
];

/** Compiles and runs a program. */
function run(name: string, source: string): { status: number | null; output: string } {
  const path = join(folder, name);
  writeFileSync(`${path}.c`, source);
  const made = spawnSync(findCompiler()!.command, [...flags, `${path}.c`, "-o", path, "-lm", "-ldl"], {
    encoding: "utf8",
  });
  if (made.status !== 0) return { status: made.status, output: made.stderr };
  const env = { ...process.env, ASAN_OPTIONS: "detect_leaks=0:allocator_may_return_null=1" };
  const { status, stdout, stderr } = spawnSync(path, [join(folder, "group")], {
    encoding: "utf8",
    timeout: 60_000,
    env,
  });
  return { status, output: stdout + stderr };
}

function available(): string | false {
  if (findCompiler() === null) return "no C compiler";
  const { status, output } = run("probe", "int main(void) { return 0; }");
  return status === 0 ? false : `the compiler has no address and undefined-behavior sanitizer: ${output.slice(0, 200)}`;
}
const skip = available();
if (skip !== false) console.error(`SKIPPED: native code under sanitizers (${skip})`);

test("the sanitizers notice what they are there for", { skip }, () => {
  const { status, output } = run("bad", "int main(int n, char** v) { int a[12]; a[n + 11] = 1; return a[n + 11]; }");
  assert.notEqual(status, 0);
  assert.match(output, /index \d+ out of bounds|stack-buffer-overflow/);
});

const groupHarness = String.raw`
#define EXPECT(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); return 1; } } while (0)
static uint64_t seed = 1;
static int64_t draw(int64_t n) { seed = seed * 6364136223846793005ull + 1442695040888963407ull; return (int64_t)((seed >> 33) % (uint64_t)n); }

/* Boxes of all ranks up to far beyond the arrays; strides fit the sizes where the rank does. */
static int boxes(void) {
  for (int turn = 0; turn < 2000; turn++) {
    int nd = (int)draw(40) - 4;
    int64_t sizes[40], strides[40], total = 4;
    for (int i = 39; i >= 0; i--) sizes[i] = turn % 7 == 0 ? draw(4) - 1 : 1 + draw(2);
    if (nd > 12) for (int i = 0; i < nd; i++) sizes[i] = 2;
    for (int i = (nd > 0 && nd <= 12 ? nd : 0) - 1; i >= 0; i--) { strides[i] = total; total *= sizes[i] > 0 ? sizes[i] : 1; }
    if (nd < 0 || nd > 12) for (int i = 0; i < 40; i++) strides[i] = 4;
    char* from = calloc(1, (size_t)total);
    char* to = calloc(1, (size_t)total);
    copy_box(to, strides, from, strides, sizes, nd, 4);
    copy_box(to, strides, from, strides, sizes, nd, turn % 2 ? 0 : -4);
    free(from); free(to);
  }
  return 0;
}

int main(int argc, char** argv) {
  EXPECT(wg_arena_open(64u << 20) == 0);
  if (boxes()) return 1;
  /* Allocations that lie. */
  EXPECT(wg_alloc(~0ull) == 0 && wg_alloc(~0ull - 4095) == 0 && wg_alloc(1ull << 62) == 0 && wg_alloc(65u << 20) == 0);
  EXPECT(wg_free(0) == 0 && wg_free(~0ull) == 0 && wg_free(wg_arena_base() + 1) == 0);
  uint64_t block = wg_alloc(100);
  EXPECT(block && wg_free(block) == 1 && wg_free(block) == 0);
  /* Memory of other processes: another nonce, another size, no file of this kind, no such process. */
  const char* nonce = arena_nonce(arena.base, arena.bytes);
  char other[NONCE];
  memcpy(other, nonce, NONCE);
  other[0] ^= 1;
  EXPECT(map_member(getpid(), 0, 1ull << 40, nonce) == 0);
  int file = open("/proc/self/exe", O_RDONLY);
  int child = fork();
  if (child == 0) { pause(); _exit(0); }
  EXPECT(map_member(child, arena.fd, arena.bytes, other) == 0 && map_member(child, arena.fd, 1ull << 40, other) == 0);
  EXPECT(map_member(getpid(), arena.fd, arena.bytes, other) == 0); /* process 1 of another container */
  EXPECT(map_member(child, 9999, 4096, other) == 0 && map_member(child, 0, 4096, other) == 0 && map_member(child, file, 1ull << 40, other) == 0);
  EXPECT(map_member(-1, 0, 4096, other) == 0 && map_member(1 << 30, 0, 4096, other) == 0);
  kill(child, 9);
  /* Nobody can shrink the memory below a mapping. */
  EXPECT(ftruncate(arena.fd, 4096) != 0 && errno == EPERM);
  /* Exchanged files: the own arena, one that can be shrunk, a plain file, a message without any, and a short one. */
  char name[96], from[64];
  uint8_t ticket[TICKET] = {0}, got[TICKET];
  int32_t who[3];
  uint64_t bytes = 0;
  EXPECT(wg_share_open(name) == 0 && wg_share_receive(got, who, from) == 0);
  EXPECT(strlen(name) == 5 + 32 + 1 + 2 * SECRET);
  name[5 + 32] = 0;
  /* Without the secret, or with another size, nothing takes up room. */
  struct sockaddr_un address;
  socklen_t length = share_address(&address, name);
  for (int i = 0; i < 10000; i++) {
    for (int k = 0; k < TICKET; k++) ticket[k] = (uint8_t)(k < SECRET ? share.secret[k] ^ (k == i % SECRET) : i);
    (void)!sendto(share.fd, ticket, TICKET, MSG_DONTWAIT, (struct sockaddr*)&address, length);
    (void)!sendto(share.fd, share.secret, 3, MSG_DONTWAIT, (struct sockaddr*)&address, length);
  }
  EXPECT(wg_share_receive(got, who, from) == 0);
  memcpy(ticket, share.secret, SECRET);
  EXPECT(wg_share_send(name, ticket, 1) == 0 && wg_share_receive(got, who, from) == 1);
  EXPECT(memcmp(got, ticket, TICKET) == 0 && who[0] == getpid() && who[1] == (int32_t)geteuid() && who[2] >= 0);
  uint64_t mapped = wg_share_map(who[2], &bytes);
  EXPECT(mapped && bytes == arena.bytes);
  wg_unmap(mapped, bytes);
  int loose = (int)syscall(SYS_memfd_create, "loose", 1u), own = arena.fd;
  EXPECT(ftruncate(loose, 1 << 20) == 0);
  const int files[] = {loose, open("/etc/passwd", O_RDONLY), open("/dev/null", O_RDWR)};
  for (int i = 0; i < 3; i++) {
    arena.fd = files[i];
    EXPECT(wg_share_send(name, ticket, 1) == 0 && wg_share_receive(got, who, from) == 1 && wg_share_map(who[2], &bytes) == 0 && bytes == 0);
  }
  arena.fd = own;
  EXPECT(sendto(share.fd, ticket, TICKET, 0, (struct sockaddr*)&address, length) == TICKET);
  EXPECT(wg_share_receive(got, who, from) == 1 && who[2] == -1);
  /* An announcement names the socket that it came from; a socket without a name has none. */
  EXPECT(wg_share_send(name, ticket, 0) == 0 && wg_share_receive(got, who, from) == 1 && who[2] == -1 && strcmp(from, name) == 0);
  int unnamed = socket(AF_UNIX, SOCK_DGRAM, 0);
  EXPECT(sendto(unnamed, ticket, TICKET, 0, (struct sockaddr*)&address, length) == TICKET);
  EXPECT(wg_share_receive(got, who, from) == 1 && who[2] == -1 && from[0] == 0);
  EXPECT(wg_share_send("weft-nobody", ticket, 1) != 0);
  /* Groups of impossible sizes. */
  int32_t error, detail, nobody[256] = {0};
  int sizes[][2] = {{0, 0}, {0, -1}, {0, 257}, {0, 1 << 30}, {-1, 2}, {2, 2}};
  for (int i = 0; i < 6; i++) EXPECT(wg_join(argv[1], sizes[i][0], sizes[i][1], nobody, 0.1, 1, &error, &detail) == 0 && error == E_SIZES);
  uint64_t handle = wg_join(argv[1], 0, 1, nobody, 5, 1, &error, &detail);
  EXPECT(handle && error == E_OK);
  group_t* g = (group_t*)(uintptr_t)handle;
  /* A right descriptor, and then one wrong number at a time. */
  static int64_t good[64];
  good[D_KIND] = K_ALLREDUCE; good[D_DTYPE] = 6; good[D_ELEMENT] = 4; good[D_MEMBERS] = 1; good[D_IN] = good[D_OUT] = 16; good[D_COUNT] = 4;
  float in[4] = {1, 2, 3, 4}, out[4] = {0};
  EXPECT(weft_collective(g, good, in, out, 0) == E_OK && out[3] == 4);
  const int64_t values[] = {-1, 1, 2, 4, 15, 255, 257, 304, 1 << 30, (int64_t)1 << 62};
  const int fields[] = {D_FN, D_DTYPE, D_ELEMENT, D_MEMBERS, D_ME, D_SENDS, D_RECEIVES, D_RANKS};
  for (int f = 0; f < 8; f++)
    for (int v = 0; v < 10; v++) {
      int64_t d[64];
      memcpy(d, good, sizeof d);
      if (d[fields[f]] == values[v]) continue;
      d[fields[f]] = values[v];
      if (fields[f] == D_DTYPE && values[v] >= 0 && values[v] <= 14) continue; /* other types of the same bytes are right */
      if (fields[f] == D_FN && values[v] >= 0 && values[v] <= 3) continue;
      if (fields[f] == D_ELEMENT && values[v] >= 1 && values[v] <= 16) continue;
      if (fields[f] == D_RECEIVES && values[v] >= 0) continue; /* read for moves alone */
      if (fields[f] == D_SENDS && values[v] >= 0 && values[v] <= SENDS / TRANSFER) continue;
      EXPECT(weft_collective(g, d, in, out, 0) == E_SIZES);
    }
  int64_t complex_max[64];
  memcpy(complex_max, good, sizeof complex_max);
  complex_max[D_DTYPE] = 8; complex_max[D_FN] = 2; complex_max[D_ELEMENT] = 8; complex_max[D_COUNT] = 2;
  EXPECT(weft_collective(g, complex_max, in, out, 0) == E_SIZES);
  puts("group ok");
  return 0;
}
`;

test("groups, shared memory and boxes refuse sizes that lie", { skip }, () => {
  const { status, output } = run("group-harness", `${groupSource()}\n${groupHarness}`);
  assert.equal(status, 0, output);
  assert.match(output, /group ok/);
});

const linksHarness = String.raw`
#define EXPECT(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); return 1; } } while (0)
enum { N = 6, TURNS = 40 };
static const int32_t hosts[N] = {0, 1, 0, 2, 0, 1};

static void box(int64_t* b, int64_t member, int64_t offset, int64_t count) {
  memset(b, 0, TRANSFER * sizeof *b);
  b[0] = member; b[1] = 1; b[2] = 4 * offset; b[3] = count; b[3 + MAX_DIMS] = 4;
}

/* Parts of 0 to 4 numbers, gathered and scattered by members on three hosts; others are empty. */
static int member(const char* name, int rank, int32_t fds[N][N]) {
  EXPECT(wg_arena_open(16u << 20) == 0);
  int near = 0, place = 0;
  int32_t error, detail, nobody[256] = {0};
  for (int i = 0; i < N; i++) if (hosts[i] == hosts[rank]) { if (i == rank) place = near; near++; }
  char own[200];
  snprintf(own, sizeof own, "%s-%d", name, (int)hosts[rank]);
  group_t* local = near > 1 ? (group_t*)(uintptr_t)wg_join(own, place, near, nobody, 20, 1, &error, &detail) : NULL;
  EXPECT(near < 2 || local);
  link_group* g = (link_group*)(uintptr_t)wl_group(rank, N, fds[rank], hosts, 30);
  EXPECT(g);
  wl_local(g, local);
  EXPECT(wl_meet(g, 20) == E_OK);
  for (int turn = 0; turn < TURNS; turn++) {
    int64_t size[N], start[N + 1] = {0};
    for (int i = 0; i < N; i++) { size[i] = (i * 3 + turn * turn) % 5; start[i + 1] = start[i] + size[i]; }
    int64_t total = start[N], d[D_RANKS + N + 2 * N * TRANSFER] = {0};
    float* in = malloc((size_t)(4 * (total + 1))), *out = malloc((size_t)(4 * (total + 1)));
    d[D_KIND] = K_MOVE; d[D_DTYPE] = 6; d[D_ELEMENT] = 4; d[D_MEMBERS] = N; d[D_ME] = rank; d[D_TAG] = turn; d[D_GATHERS] = 1;
    d[D_IN] = 4 * size[rank]; d[D_OUT] = 4 * total; d[D_COUNT] = total; d[D_SENDS] = d[D_RECEIVES] = N;
    d[D_SENDS_AT] = D_RANKS + N; d[D_RECEIVES_AT] = d[D_SENDS_AT] + N * TRANSFER;
    for (int i = 0; i < N; i++) {
      d[D_RANKS + i] = i;
      box(d + d[D_SENDS_AT] + i * TRANSFER, i, 0, size[rank]);
      box(d + d[D_RECEIVES_AT] + i * TRANSFER, i, start[i], size[i]);
    }
    for (int64_t k = 0; k < size[rank]; k++) in[k] = (float)(1000 * rank + k + turn);
    EXPECT(wl_collective(g, d, in, out, 0) == E_OK);
    for (int i = 0; i < N; i++)
      for (int64_t k = 0; k < size[i]; k++) EXPECT(out[start[i] + k] == (float)(1000 * i + k + turn));
    /* Two rows of all parts; every member gets the sum of its columns. */
    float* rows = malloc((size_t)(8 * (total + 1))), *part = malloc((size_t)(8 * (size[rank] + 1)));
    int64_t s[D_RANKS + N + 2 * N] = {0};
    s[D_KIND] = K_REDUCESCATTER; s[D_DTYPE] = 6; s[D_ELEMENT] = 4; s[D_MEMBERS] = N; s[D_ME] = rank; s[D_TAG] = 100 + turn;
    s[D_IN] = 8 * total; s[D_OUT] = 8 * size[rank]; s[D_COUNT] = 2 * size[rank]; s[D_OUTER] = 2; s[D_ROW] = total;
    s[D_START] = start[rank]; s[D_RUN] = size[rank]; s[D_PARTS_AT] = D_RANKS + N;
    for (int i = 0; i < N; i++) { s[D_RANKS + i] = i; s[s[D_PARTS_AT] + 2 * i] = start[i]; s[s[D_PARTS_AT] + 2 * i + 1] = size[i]; }
    for (int64_t k = 0; k < 2 * total; k++) rows[k] = (float)(rank + 1 + k);
    EXPECT(wl_collective(g, s, rows, part, 0) == E_OK);
    for (int64_t o = 0; o < 2; o++)
      for (int64_t k = 0; k < size[rank]; k++)
        EXPECT(part[o * size[rank] + k] == (float)(N * (N + 1) / 2 + N * (o * total + start[rank] + k)));
    free(in); free(out); free(rows); free(part);
  }
  wl_close(g, 1);
  return 0;
}

int main(int argc, char** argv) {
  int32_t fds[N][N] = {{0}};
  for (int i = 0; i < N; i++)
    for (int j = 0; j < i; j++) { int32_t pair[2]; EXPECT(wl_pair(pair) == 0); fds[i][j] = pair[0]; fds[j][i] = pair[1]; }
  int bad = 0;
  for (int i = 0; i < N; i++) {
    if (fork()) continue;
    for (int a = 0; a < N; a++) for (int b = 0; b < N; b++) if (a != i && a != b) close(fds[a][b]);
    _exit(member(argv[1], i, fds));
  }
  for (int i = 0; i < N; i++) { int status = 1; wait(&status); bad |= status; }
  if (!bad) puts("links ok");
  return bad != 0;
}
`;

test("gathering and scattering by host stays within its arrays", { skip }, () => {
  const { status, output } = run("links-harness", `${groupSource()}\n#include <sys/wait.h>\n${linksHarness}`);
  assert.equal(status, 0, output);
  assert.match(output, /links ok/);
});

const runtimeHarness = String.raw`
#define EXPECT(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); return 1; } } while (0)
#include <stdio.h>
#include <limits.h>
int main(void) {
  EXPECT(wr_alloc(~0ull) == NULL && wr_alloc(1ull << 60) == NULL);
  void* p = wr_alloc(0);
  EXPECT(p != NULL);
  wr_free(p);
  wr_init(NULL, 2);
  /* Indices from data: none of them may leave the result. */
  float base[12] = {0}, updates[15], out[12];
  for (int i = 0; i < 15; i++) updates[i] = 1;
  const int32_t indices[5] = {INT_MIN, -1, 3, 4, INT_MAX};
  wr_scatter(6, 1, 1, 4, 3, 5, base, indices, updates, out, 2);
  for (int i = 0; i < 12; i++) EXPECT(out[i] == (i >= 9 ? 1 : 0));
  wr_scatter(6, 1, 1, 4, 3, 5, NULL, indices, updates, out, 2);
  wr_scatter(6, 0, 1, 4, 3, 5, NULL, indices, updates, out, 2);
  wr_scatter(6, 1, 1, 0, 3, 5, NULL, indices, updates, out, 2);
  /* Empty and single. */
  wr_cumsum(6, 0, 4, 1, 0, base, out, 2); wr_cumsum(6, 1, 0, 1, 1, base, out, 2);
  int32_t order[8];
  wr_argsort(6, 0, 4, 0, 4, 0, base, order, 2); wr_argsort(6, 1, 0, 0, 0, 0, base, order, 2);
  /* Equal numbers keep their order, and NaN is last. */
  const double numbers[8] = {3, 1, __builtin_nan(""), 2, 1, -__builtin_inf(), __builtin_nan(""), 3};
  const int32_t sorted[8] = {5, 1, 4, 3, 0, 7, 2, 6};
  const int32_t descending[8] = {2, 6, 0, 7, 3, 1, 4, 5};
  wr_argsort(7, 1, 8, 0, 8, 1, numbers, order, 1);
  for (int i = 0; i < 8; i++) EXPECT(order[i] == descending[i]);
  wr_argsort(7, 1, 8, 0, 3, 1, numbers, order, 1);
  for (int i = 0; i < 3; i++) EXPECT(order[i] == descending[i]);
  wr_argsort(7, 1, 8, 0, 8, 0, numbers, order, 1);
  for (int i = 0; i < 8; i++) EXPECT(order[i] == sorted[i]);
  /* Products with empty sides. */
  wr_gemm(0, 0, 4, 3, base, 3, 1, 0, updates, 4, 1, 0, out, 4, 0, NULL, NULL, NULL, NULL, 2);
  wr_gemm(0, 3, 4, 0, base, 0, 1, 0, updates, 4, 1, 0, out, 4, 0, NULL, NULL, NULL, NULL, 2);
  for (int i = 0; i < 12; i++) EXPECT(out[i] == 0);
  puts("runtime ok");
  return 0;
}
`;

test("the CPU's runtime stays within its arrays", { skip }, () => {
  const { status, output } = run("runtime-harness", `${runtimeUnits().join("\n")}\n${runtimeHarness}`);
  assert.equal(status, 0, output);
  assert.match(output, /runtime ok/);
});
