/* blaslt.cu -- matrix products by NVIDIA's library cuBLASLt, if it is found at run time. Its header
** is not needed: this file declares the few types and constants of its stable interface that it
** uses.
**
** cuBLASLt is column-major and Moth row-major, so it computes C^T = B^T A^T. The library's choice
** of an algorithm is requested once and cached with its descriptors; the key has everything that
** the choice depends on: shapes, strides, types and alignment. */
#include "lib/gemm.cuh"

#include <pthread.h>
#include <stdlib.h>

#include "host/device.cuh"
#include "lib/dtypes.cuh"

/* -- the interface -- */

typedef struct lt_algorithm {
  uint64_t data[8];
} lt_algorithm;

typedef struct lt_found {
  lt_algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
} lt_found;

enum { LT_EXECUTION_FAILED = 13 };
enum { LT_R_32F = 0, LT_R_64F = 1, LT_R_16F = 2, LT_R_16BF = 14 };
enum { LT_COMPUTE_32F = 68, LT_COMPUTE_64F = 70, LT_COMPUTE_TF32 = 77 };
enum { LT_DESC_TRANSA = 3, LT_DESC_TRANSB = 4, LT_DESC_EPILOGUE = 7, LT_DESC_BIAS = 8 };
enum { LT_LAYOUT_BATCH = 5, LT_LAYOUT_STEP = 6 };
/* LT_PREFER_ALIGNMENT is for A; the next values are for B, C and D. */
enum { LT_PREFER_WORKSPACE = 1, LT_PREFER_SUMS = 3, LT_PREFER_ALIGNMENT = 5 };
/* How a product that is split among blocks may be summed: in the result itself; or in scratch
** memory in a fixed order, in the compute type or in the result's type. */
enum { LT_SUMS_WIDE = 2, LT_SUMS_REPEAT = 2 | 4, LT_SUMS_ANY = 7 };
enum { LT_EPILOGUE_DEFAULT = 1, LT_EPILOGUE_BIAS = 4, LT_EPILOGUE_SUMS_B = 512 };
enum { LT_ALIGNED = 256 }; /* bytes: a larger alignment makes no difference */

#define LT_FUNCTIONS(F)                                                                            \
  F(Create, (void **handle))                                                                       \
  F(Destroy, (void *handle))                                                                       \
  F(MatmulDescCreate, (void **desc, int compute, int scale))                                       \
  F(MatmulDescDestroy, (void *desc))                                                               \
  F(MatmulDescSetAttribute, (void *desc, int what, const void *value, size_t size))                \
  F(MatrixLayoutCreate, (void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld))       \
  F(MatrixLayoutDestroy, (void *layout))                                                           \
  F(MatrixLayoutSetAttribute, (void *layout, int what, const void *value, size_t size))            \
  F(MatmulPreferenceCreate, (void **preference))                                                   \
  F(MatmulPreferenceDestroy, (void *preference))                                                   \
  F(MatmulPreferenceSetAttribute, (void *p, int what, const void *value, size_t size))             \
  F(MatmulAlgoGetHeuristic, (void *handle, void *desc, void *a, void *b, void *c, void *d,         \
                             void *preference, int wanted, lt_found *found, int *count))           \
  F(Matmul, (void *handle, void *desc, const void *alpha, const void *a, void *a_layout,           \
             const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,       \
             void *d, void *d_layout, const lt_algorithm *algorithm, void *workspace,              \
             size_t workspace_size, cudaStream_t stream))

#define LT_MEMBER(name, args) int(*name) args;
#define LT_NAME(name, args) "cublasLt" #name,
#define LT_ONE(name, args) +1
enum { LT_COUNT = 0 LT_FUNCTIONS(LT_ONE) };
static union lt_table {
  void *at[LT_COUNT];
  struct {
    LT_FUNCTIONS(LT_MEMBER)
  } fn;
} lt;
static const char *const lt_names[] = {LT_FUNCTIONS(LT_NAME)};

/* -- the state of a context on a device -- */

typedef struct lt_key { /* all that the choice depends on; compared bytewise */
  int32_t dtype, compute, epilogue, transposed_x, transposed_y;
  uint32_t sums; /* LT_SUMS_ constants */
  uint32_t alignment[4]; /* of A, B, C; the last one: of all outputs and of the bias together */
  int64_t m, n, k, ldx, ldy, ldc, count, step_x, step_y, step_c;
} lt_key;
static_assert(sizeof(lt_key) == 10 * 4 + 10 * 8, "no padding");

typedef struct lt_plan {
  lt_key key;
  void *desc, *x, *y, *c;
  lt_found found;
  bool taken, works;
} lt_plan;

enum { PLANS = 512 };

typedef struct lt_state {
  void *handle, *preference, *workspace;
  size_t workspace_size;
  lt_plan plans[PLANS];
} lt_state;

static void drop_plan(lt_plan *p) {
  if (p->desc) lt.fn.MatmulDescDestroy(p->desc);
  if (p->x) lt.fn.MatrixLayoutDestroy(p->x);
  if (p->y) lt.fn.MatrixLayoutDestroy(p->y);
  if (p->c) lt.fn.MatrixLayoutDestroy(p->c);
  memset(p, 0, sizeof *p);
}

static void close_state(void *state) {
  lt_state *s = (lt_state *)state;
  for (int i = 0; i < PLANS; i++) drop_plan(&s->plans[i]);
  if (s->preference) lt.fn.MatmulPreferenceDestroy(s->preference);
  if (s->handle) lt.fn.Destroy(s->handle);
  cudaFree(s->workspace);
  free(s);
}

static bool there;
static pthread_once_t looked = PTHREAD_ONCE_INIT;
static void look(void) {
  there = moth_library_functions(LIBRARY_BLASLT, lt_names, LT_COUNT, lt.at);
}

/* NULL: the library is missing or cannot be initialized. */
static lt_state *state_of(const moth_queue *q) {
  moth_library_state *kept = moth_library_state_of(q, LIBRARY_BLASLT);
  pthread_once(&looked, look);
  if (!there) return NULL;
  lt_state *s = (lt_state *)kept->state;
  if (s) return s->handle ? s : NULL;
  s = (lt_state *)calloc(1, sizeof *s);
  if (!s) return NULL;
  kept->state = s;
  kept->close = close_state;
  s->workspace_size = (size_t)(q->major >= 9 ? 32 : 8) << 20; /* NVIDIA's recommendation */
  if (cudaMalloc(&s->workspace, s->workspace_size) != cudaSuccess) {
    cudaGetLastError();
    s->workspace = NULL;
    s->workspace_size = 0;
  }
  if (lt.fn.MatmulPreferenceCreate(&s->preference)) return NULL;
  lt.fn.MatmulPreferenceSetAttribute(s->preference, LT_PREFER_WORKSPACE, &s->workspace_size,
                                     sizeof s->workspace_size);
  if (lt.fn.Create(&s->handle)) s->handle = NULL;
  return s->handle ? s : NULL;
}

bool moth_blaslt_is_here(const moth_queue *q) { return state_of(q) != NULL; }

/* -- plans -- */

static void *layout_of(int type, bool transposed, int64_t rows, int64_t cols, int64_t ld,
                       int64_t count, int64_t step) {
  void *l = NULL;
  const int32_t n = (int32_t)count;
  if (lt.fn.MatrixLayoutCreate(&l, type, (uint64_t)(transposed ? cols : rows),
                               (uint64_t)(transposed ? rows : cols), ld))
    return NULL;
  lt.fn.MatrixLayoutSetAttribute(l, LT_LAYOUT_BATCH, &n, sizeof n);
  lt.fn.MatrixLayoutSetAttribute(l, LT_LAYOUT_STEP, &step, sizeof step);
  return l;
}

/* `beside`: the bias, or the memory for row sums. */
static void make_plan(lt_state *s, lt_plan *p, const lt_key *k, const void *beside) {
  const int type = k->dtype == MOTH_F64 ? LT_R_64F : k->dtype == MOTH_F16 ? LT_R_16F
                   : k->dtype == MOTH_BF16 ? LT_R_16BF : LT_R_32F;
  const int32_t epilogue = k->epilogue;
  int count = 0;
  drop_plan(p);
  p->key = *k;
  p->taken = true;
  if (lt.fn.MatmulDescCreate(&p->desc, k->compute, type == LT_R_64F ? LT_R_64F : LT_R_32F)) {
    p->desc = NULL;
    return;
  }
  lt.fn.MatmulDescSetAttribute(p->desc, LT_DESC_TRANSA, &k->transposed_x, sizeof k->transposed_x);
  lt.fn.MatmulDescSetAttribute(p->desc, LT_DESC_TRANSB, &k->transposed_y, sizeof k->transposed_y);
  lt.fn.MatmulDescSetAttribute(p->desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (beside) lt.fn.MatmulDescSetAttribute(p->desc, LT_DESC_BIAS, &beside, sizeof beside);
  p->x = layout_of(type, k->transposed_x, k->n, k->k, k->ldx, k->count, k->step_x);
  p->y = layout_of(type, k->transposed_y, k->k, k->m, k->ldy, k->count, k->step_y);
  p->c = layout_of(type, false, k->n, k->m, k->ldc, k->count, k->step_c);
  if (!p->x || !p->y || !p->c) return;
  for (int i = 0; i < 4; i++)
    lt.fn.MatmulPreferenceSetAttribute(s->preference, LT_PREFER_ALIGNMENT + i,
                                       &k->alignment[i], sizeof *k->alignment);
  lt.fn.MatmulPreferenceSetAttribute(s->preference, LT_PREFER_SUMS, &k->sums, sizeof k->sums);
  p->works = lt.fn.MatmulAlgoGetHeuristic(s->handle, p->desc, p->x, p->y, p->c, p->c,
                                          s->preference, 1, &p->found, &count) == 0 &&
             count > 0 && p->found.status == 0;
}

static lt_plan *plan_of(lt_state *s, const lt_key *k, const void *beside) {
  bool is_new;
  lt_plan *p = plan_for(s->plans, *k, &is_new, [](const lt_plan &) { return true; });
  if (is_new) make_plan(s, p, k, beside);
  return p;
}

/* -- operands in the library's form -- */

/* A column-major matrix: (rows, cols) with row and column strides; *transposed: it is row-major. */
static bool has_layout(int64_t rows, int64_t cols, int64_t rs, int64_t cs, int32_t *transposed,
                       int64_t *ld) {
  for (*transposed = 0; *transposed < 2; ++*transposed) {
    const int64_t inner = *transposed ? cols : rows, outer = *transposed ? rows : cols;
    const int64_t near = *transposed ? cs : rs, far = *transposed ? rs : cs;
    *ld = outer == 1 ? inner : far;
    if ((near == 1 || inner == 1) && *ld >= inner) return true;
  }
  return false;
}

/* Merges a batch into its innermost dimension; the outer ones are looped over here. */
static void merged(const moth_batch *b, moth_batch *to) {
  to->ndim = 0;
  to->step_c = b ? b->step_c : 0;
  for (int d = 0; b && d < b->ndim; d++) {
    const int last = to->ndim - 1;
    if (b->shape[d] == 1) continue;
    if (last >= 0 && to->step_a[last] == b->shape[d] * b->step_a[d] &&
        to->step_b[last] == b->shape[d] * b->step_b[d]) {
      to->shape[last] *= b->shape[d];
      to->step_a[last] = b->step_a[d];
      to->step_b[last] = b->step_b[d];
      continue;
    }
    to->shape[to->ndim] = b->shape[d];
    to->step_a[to->ndim] = b->step_a[d];
    to->step_b[to->ndim++] = b->step_b[d];
  }
}

/* -- running -- */

static const int64_t MOST_COUNT = 65535;

typedef struct lt_call {
  moth_ctx *ctx;
  const moth_queue *q;
  lt_state *s;
  const moth_gemm *g;
  lt_key key;
} lt_call;

static int multiply(lt_call *c, const char *a, const char *b, char *to, int64_t count,
                    bool *done) {
  const moth_gemm *g = c->g;
  const int64_t size = moth_dtype_size[g->dtype];
  lt_key *k = &c->key;
  k->count = count;
  k->alignment[0] = alignment_of(b, k->step_x * size, LT_ALIGNED);
  k->alignment[1] = alignment_of(a, k->step_y * size, LT_ALIGNED);
  k->alignment[2] = alignment_of(to, k->step_c * size, LT_ALIGNED);
  const void *beside = g->bias ? g->bias : g->sums;
  k->alignment[3] = beside ? alignment_of(beside, 0, k->alignment[2]) : k->alignment[2];
  lt_plan *p = plan_of(c->s, k, beside);
  *done = p->works;
  if (!p->works) return MOTH_OK;
  const float narrow[2] = {(float)g->alpha, (float)g->beta};
  const double wide[2] = {g->alpha, g->beta};
  const bool f64 = g->dtype == MOTH_F64;
  if (beside) lt.fn.MatmulDescSetAttribute(p->desc, LT_DESC_BIAS, &beside, sizeof beside);
  const int failed = lt.fn.Matmul(
    c->s->handle, p->desc, f64 ? (const void *)&wide[0] : (const void *)&narrow[0], b, p->x, a,
    p->y, f64 ? (const void *)&wide[1] : (const void *)&narrow[1], to, p->c, to, p->c,
    &p->found.algorithm, c->s->workspace, c->s->workspace_size, c->q->stream);
  if (failed == LT_EXECUTION_FAILED)
    return moth_fail(c->ctx, MOTH_E_CUDA, NULL,
                     "cuBLASLt could not multiply (CUBLAS_STATUS_EXECUTION_FAILED)");
  *done = p->works = !failed; /* some plans fail only when they run */
  return failed ? MOTH_OK : moth_launched(c->ctx, c->q, cudaSuccess);
}

/* Loops over the outer dimensions of a batch, at most MOST_COUNT products at a time. */
static int multiply_all(lt_call *c, const moth_batch *b, bool *done) {
  const moth_gemm *g = c->g;
  const int inner = b->ndim - 1;
  const int64_t size = moth_dtype_size[g->dtype], each = inner >= 0 ? b->shape[inner] : 1;
  int64_t outer = 1;
  int status = MOTH_OK;
  for (int d = 0; d < inner; d++) outer *= b->shape[d];
  for (int64_t i = 0; i < outer; i++) {
    const char *p = (const char *)g->a, *q = (const char *)g->b;
    int64_t rest = i;
    for (int d = inner - 1; d >= 0; d--, rest /= b->shape[d + 1]) {
      p += rest % b->shape[d] * b->step_a[d] * size;
      q += rest % b->shape[d] * b->step_b[d] * size;
    }
    for (int64_t j = 0; j < each; j += MOST_COUNT) {
      const int64_t count = each - j < MOST_COUNT ? each - j : MOST_COUNT;
      const bool first = i == 0 && j == 0;
      status = multiply(c, p + j * c->key.step_y * size, q + j * c->key.step_x * size,
                        (char *)g->c + (i * each + j) * c->key.step_c * size, count, done);
      if (!status && !*done && !first)
        return moth_fail(c->ctx, MOTH_E_CUDA, NULL, "cuBLASLt refuses the rest of a batch");
      if (status || !*done) return status;
    }
  }
  return status;
}

int moth_blaslt_run(moth_ctx *ctx, const moth_queue *q, const moth_gemm *g, bool *done) {
  lt_call c = {ctx, q, NULL, g, {}};
  moth_batch batch;
  lt_key *k = &c.key;
  *done = false;
  if (!moth_is_float(g->dtype) || !(c.s = state_of(c.q))) return MOTH_OK;
  if (!has_layout(g->n, g->k, g->cs_b, g->rs_b, &k->transposed_x, &k->ldx) ||
      !has_layout(g->k, g->m, g->cs_a, g->rs_a, &k->transposed_y, &k->ldy))
    return MOTH_OK;
  merged(g->batch, &batch);
  k->dtype = g->dtype;
  k->sums = moth_dtype_size[g->dtype] == 2 ? LT_SUMS_WIDE /* half types are summed in f32 */
            : moth_is_deterministic(ctx) ? LT_SUMS_REPEAT : LT_SUMS_ANY;
  k->compute = g->dtype == MOTH_F64 ? LT_COMPUTE_64F
               : g->dtype == MOTH_F32 && (g->tf32 || moth_float32_precision(ctx)) ? LT_COMPUTE_TF32
                                                                                  : LT_COMPUTE_32F;
  k->epilogue = g->bias ? LT_EPILOGUE_BIAS : g->sums ? LT_EPILOGUE_SUMS_B : LT_EPILOGUE_DEFAULT;
  k->m = g->m, k->n = g->n, k->k = g->k;
  k->ldc = g->m == 1 ? g->n : g->ldc;
  if (batch.ndim) {
    k->step_x = batch.step_b[batch.ndim - 1];
    k->step_y = batch.step_a[batch.ndim - 1];
    k->step_c = batch.step_c;
  }
  return multiply_all(&c, &batch, done);
}
