/* plans.c -- asks the real cuDNN for plans on a machine without a GPU: cuDNN accepts the properties
** of a GPU as text, to compile for other machines. All calls go to the library in PLANS_CUDNN, with
** the properties in PLANS_CARD instead of a handle. Plans are made, but not run.
**
** spec/cuda/plans_spec.lua builds it as a shared library, and MOTH_CUDNN opens it. At exit it
** prints the number of graphs, the number of graphs with an accepted plan, and the refused calls.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_HEURISTICS = 4, KIND_PLAN = 5, KIND_GRAPH = 15, KIND_CARD = 38 };
enum { HEURISTICS_CARD = 204, PLAN_HANDLE = 400, PLAN_CARD = 407, GRAPH_HANDLE = 800,
       CARD_TEXT = 2702 };
enum { IS_DESCRIPTOR = 15, IS_CHAR = 24, MOST = 4096 };

#define FUNCTIONS(F)                                                                        \
  F(size_t, GetVersion, (void))                                                             \
  F(int, BackendCreateDescriptor, (int kind, void **to))                                    \
  F(int, BackendDestroyDescriptor, (void *d))                                               \
  F(int, BackendFinalize, (void *d))                                                        \
  F(int, BackendSetAttribute, (void *d, int name, int type, int64_t n, const void *from))   \
  F(int, BackendGetAttribute, (void *d, int name, int type, int64_t most, int64_t *n, void *to))

#define MEMBER(type, name, args) type(*name) args;
#define NAME(type, name, args) "cudnn" #name,
#define ONE(type, name, args) +1
enum { COUNT = 0 FUNCTIONS(ONE) };
static union {
  void *at[COUNT];
  struct {
    FUNCTIONS(MEMBER)
  };
} real;
static const char *const names[] = {FUNCTIONS(NAME)};

static char handle;
static void *card, *graphs[MOST], *ran[MOST];
static int ngraphs, nran, refused;

static void say(void) { printf("graphs=%d ran=%d refused=%d\n", ngraphs, nran, refused); }

static void wrong(const char *what, int code) {
  printf("WRONG: %s (%d)\n", what, code);
  fflush(stdout);
  _Exit(1);
}

static int told(const char *what, int name, int status) {
  if (status) printf("refused: %s %d: %d\n", what, name, status), refused++;
  return status;
}

static void open_real(void) {
  void *library = real.at[0] ? NULL : dlopen(getenv("PLANS_CUDNN"), RTLD_NOW | RTLD_LOCAL);
  for (int i = 0; library && i < COUNT; i++) real.at[i] = dlsym(library, names[i]);
  if (!real.at[0]) wrong("the library is not there", 0);
}

/* -- the interface -- */

size_t cudnnGetVersion(void) {
  open_real();
  return real.GetVersion();
}

int cudnnCreate(void **to) {
  const char *text = getenv("PLANS_CARD");
  open_real();
  int status = real.BackendCreateDescriptor(KIND_CARD, &card);
  status = status ? status : real.BackendSetAttribute(card, CARD_TEXT, IS_CHAR,
                                                      (int64_t)strlen(text), text);
  status = status ? status : real.BackendFinalize(card);
  if (status) wrong("a card's properties", status);
  atexit(say);
  *to = &handle;
  return 0;
}

int cudnnDestroy(void *h) { return h != &handle; }
int cudnnSetStream(void *h, void *stream) { return h != &handle || !stream; }

int cudnnBackendCreateDescriptor(int kind, void **to) {
  int status = real.BackendCreateDescriptor(kind, to);
  if (!status && kind == KIND_HEURISTICS)
    status = real.BackendSetAttribute(*to, HEURISTICS_CARD, IS_DESCRIPTOR, 1, &card);
  if (!status && kind == KIND_PLAN)
    status = real.BackendSetAttribute(*to, PLAN_CARD, IS_DESCRIPTOR, 1, &card);
  if (!status && kind == KIND_GRAPH) {
    if (ngraphs == MOST) wrong("more graphs than there is room for", MOST);
    graphs[ngraphs++] = *to;
  }
  return told("a descriptor of kind", kind, status);
}

int cudnnBackendDestroyDescriptor(void *d) { return real.BackendDestroyDescriptor(d); }

int cudnnBackendSetAttribute(void *d, int name, int type, int64_t n, const void *from) {
  if (name == GRAPH_HANDLE || name == PLAN_HANDLE) return 0;
  return told("attribute", name, real.BackendSetAttribute(d, name, type, n, from));
}

/* A plan or heuristics may be refused: others follow. */
int cudnnBackendFinalize(void *d) {
  const int status = real.BackendFinalize(d);
  for (int i = 0; status && i < ngraphs; i++)
    if (graphs[i] == d) told("graph", i, status);
  return status;
}

int cudnnBackendGetAttribute(void *d, int name, int type, int64_t most, int64_t *n, void *to) {
  return told("what is asked for", name, real.BackendGetAttribute(d, name, type, most, n, to));
}

int cudnnBackendExecute(void *h, void *plan, void *variant) {
  int at = 0;
  while (at < nran && ran[at] != plan) at++;
  if (at == nran) ran[nran++] = plan;
  return h != &handle || !variant;
}
