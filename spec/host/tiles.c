/* tiles.c -- the results of AMX tile instructions, and the uses that fault, compared with Intel's
** manual: on the processor itself, or with the emulation. Compiled with kernel/level.c.
*/
#include "kernel/gemm/amx_emulated.c"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t a[ROWS][16], b[ROWS][16];
static float c[ROWS][16];
static int wrong;

/* Bits of bf16 as a pair, the lower one first. */
static uint32_t pair(float low, float high) {
  uint32_t x, y;
  memcpy(&x, &low, sizeof x);
  memcpy(&y, &high, sizeof y);
  return x >> 16 | (y & 0xffff0000);
}

static void expect(const char *what, float got, float wanted) {
  if (got == wanted && signbit(got) == signbit(wanted)) return;
  printf("%s: %a, wanted %a\n", what, (double)got, (double)wanted);
  wrong = 1;
}

/* c[0][0] += a row times a column. */
AMX_TARGET static float sum(float start, int n, const float (*x)[2], const float (*y)[2]) {
  memset(a, 0, sizeof a);
  memset(b, 0, sizeof b);
  for (int k = 0; k < n; k++) a[0][k] = pair(x[k][0], x[k][1]), b[k][0] = pair(y[k][0], y[k][1]);
  c[0][0] = start;
  amx_open(ROWS, ROWS);
  AMX_LOAD(0, c, 16);
  AMX_LOAD(4, a, 16);
  AMX_LOAD(6, b, 16);
  AMX_DOT(0, 4, 6);
  AMX_STORE(0, c, 16);
  AMX_CLOSE();
  return c[0][0];
}

#define PAIRS(...) (const float[][2]){__VA_ARGS__}

static void rounding(void) {
  const float big = 0x1p24f;
  expect("both of a pair", sum(1, 1, PAIRS({2, 3}), PAIRS({5, 7})), 32);
  expect("first and second numbers are summed apart",
         sum(0, 2, PAIRS({big, -big}, {1, 0}), PAIRS({1, 1}, {1, 0})), 0);
  expect("and before the start", sum(big, 2, PAIRS({1, 0}, {1, 0}), PAIRS({1, 0}, {1, 0})),
         big + 2);
  expect("ties to even", sum(big, 1, PAIRS({3, 0}), PAIRS({1, 0})), big + 4);
  expect("multiplied and added in one step",
         sum(0, 2, PAIRS({0x1.02p12f, 0}, {-0x1.04p12f, 0}),
             PAIRS({0x1.02p12f, 0}, {0x1p12f, 0})), 0x1p10f);
  expect("denormal numbers are 0", sum(0, 1, PAIRS({0x1p-130f, 0}), PAIRS({0x1p100f, 0})), 0);
  expect("denormal starts are 0", sum(0x1p-130f, 1, PAIRS({0, 0}), PAIRS({0, 0})), 0);
  expect("denormal results are 0", sum(0, 1, PAIRS({0x1p-70f, 0}), PAIRS({0x1p-60f, 0})), 0);
  expect("infinity", sum(0, 1, PAIRS({INFINITY, 0}), PAIRS({2, 0})), INFINITY);
  c[0][0] = sum(0, 1, PAIRS({INFINITY, 0}), PAIRS({0, 0}));
  if (!isnan(c[0][0])) expect("infinity times 0", c[0][0], NAN);
}

/* Tiles of 3 by 5 pairs and 5 by 7: no byte beyond a shape is read as a number, or written. */
AMX_TARGET static void shapes_are_kept(void) {
  shapes to = {.palette = 1};
  to.rows[0] = 3, to.bytes[0] = 28, to.rows[4] = 3, to.bytes[4] = 20, to.rows[6] = 5;
  to.bytes[6] = 28;
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < 16; j++) a[i][j] = b[i][j] = pair((float)i, (float)j), c[i][j] = -1;
  __asm__ volatile("ldtilecfg %0" ::"m"(to) : "memory");
  AMX_ZERO(0);
  AMX_LOAD(4, a, 16);
  AMX_LOAD(6, b, 16);
  AMX_DOT(0, 4, 6);
  AMX_STORE(0, c, 16);
  AMX_CLOSE();
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < 16; j++) /* sum over k < 5 of i k + k j */
      expect("a part of a tile", c[i][j], i < 3 && j < 7 ? (float)(10 * (i + j)) : -1);
}

AMX_TARGET static void before_opening(void) { AMX_ZERO(0); }
AMX_TARGET static void after_closing(void) {
  amx_open(ROWS, ROWS);
  AMX_CLOSE();
  AMX_LOAD(0, c, 16);
}
AMX_TARGET static void without_rows(void) { amx_open(ROWS, 0); }
AMX_TARGET static void too_many_rows(void) { amx_open(17, ROWS); }
AMX_TARGET static void of_unequal_rows(void) {
  amx_open(ROWS, 3);
  AMX_DOT(0, 5, 6);
}
AMX_TARGET static void of_nothing(void) {
  amx_open(ROWS, ROWS);
  AMX_LOAD(0, (const char *)-4096, 16);
}

static void faults(void) {
  static void (*const uses[])(void) = {before_opening, after_closing, without_rows, too_many_rows,
                                       of_unequal_rows, of_nothing};
  fflush(stdout);
  for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
    int status = 0;
    const pid_t child = fork();
    if (!child) {
      if (!freopen("/dev/null", "w", stderr)) _exit(1);
      uses[i]();
      _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) continue;
    printf("use %zu is not a fault\n", i);
    wrong = 1;
  }
}

int main(void) {
  if (!moth_amx_here()) return puts("no AVX-512"), 0;
  rounding();
  shapes_are_kept();
  faults();
  puts(wrong ? "wrong" : "as the manual says");
  return wrong;
}
