/* capture_parts.h -- declarations shared by the files of captured steps: capture.c records,
** capture_run.c begins, ends, replays and frees, capture_fuse_pairs.c and
** capture_fuse_elementwise.c fuse instructions, capture_graph.c makes graphs. capture.h describes
** the whole.
*/
#ifndef MOTH_CAPTURE_PARTS_H
#define MOTH_CAPTURE_PARTS_H

#include "capture.h"
#include "device/device.h"

#define MOTH_FROZEN 64 /* frozen tensors that are searched for an equal one */

enum {                /* bits of moth_storage.held; they belong to moth_storage.capture */
  MOTH_C_INSIDE = 1,  /* made during the capture */
  MOTH_C_POOLED = 2,  /* a result: its block may be used again after it is freed */
  MOTH_C_WRITTEN = 4, /* written by an instruction */
  MOTH_C_AGAIN = 8,   /* written by two, or in an unknown way */
  MOTH_C_BURIED = 16, /* freed during the capture: only the capture refers to it */
  MOTH_C_UNMADE = 32  /* no instruction makes it any more */
};

enum {                /* moth_instruction.facts: properties found in its first run */
  MOTH_I_VARIES = 1,  /* its numbers differ in each replay */
  MOTH_I_OTHERS = 2,  /* it ran kernels other than the plugin's own */
  MOTH_I_WAITED = 4,  /* it waited for the device, or copied bytes to or from the CPU */
  MOTH_I_SETTLES = 8  /* the work after moth_capture_settles is the same in each replay */
};

typedef struct moth_guard { /* the args of an instruction without a kernel */
  struct moth_guard *next; /* the previous guard */
  moth_tensor **found;
  uint32_t nfound, number;
  uint32_t past;           /* the first instruction after the part that the guard may skip */
  bool closed, skipped;    /* skipped: the last replay skipped these instructions */
} moth_guard;

typedef struct moth_instruction {
  moth_kernel run;   /* NULL: a guard */
  void *args;
  moth_tensor *out[MOTH_MAX_OUTPUTS];
  const moth_op *op;
  bool once;         /* its result is the same in each replay */
  bool joined;       /* fused into an earlier instruction */
  uint8_t device;    /* the device of its tensors, except single elements; 0: none */
  uint8_t facts;     /* MOTH_I_... */
  uint16_t launches; /* launches on the device, at most UINT16_MAX */
} moth_instruction;

typedef struct moth_segment { /* consecutive instructions: a graph, or run separately */
  uint32_t first, last;       /* up to last - 1 */
  int device;                 /* the graph's device; 0: no graph */
  bool failed;                /* the graph could not be made */
  bool short_once;            /* memory ran out once, and the cache was emptied since */
  moth_graph *graph;          /* NULL until the first replay */
} moth_segment;

typedef struct moth_held {
  moth_storage *s;
  enum { MOTH_HELD_NOT, MOTH_HELD_COUNTED, MOTH_HELD_BURIED } how;
  bool inside; /* made during this capture; `held` may belong to another capture now */
} moth_held;

typedef struct moth_spare { /* a block for later results */
  void *block, *owner; /* owner: for a device's block */
  int64_t nbytes;
  uint8_t device;
} moth_spare;

typedef struct moth_watched { /* a tensor from before the capture; replays need these unchanged: */
  moth_tensor *tensor;        /* counted */
  moth_storage *storage;
  uint32_t requires;          /* MOTH_T_REQUIRES or 0 */
} moth_watched;

typedef struct moth_leaf_state {
  moth_node *leaf;            /* counted */
  moth_tensor *before;        /* its .grad at the begin, counted; used if `asked` */
  moth_tensor *after;         /* its .grad at the end, counted */
  bool asked, hooked;         /* asked: the step read its .grad first; hooked: it had hooks then */
  moth_tensor *kept; /* during a comparison: the .grad of the other run, counted */
} moth_leaf_state;

typedef struct moth_kept { /* a storage's bytes, after this header, during a comparison */
  struct moth_kept *next;
  moth_storage *s;
  int64_t nbytes;
  bool inside;
} moth_kept;

typedef struct moth_initial { /* the contents of a storage at the begin of a replay */
  struct moth_initial *next;
  moth_storage *s;
  void *bytes, *owner;
} moth_initial;

typedef struct moth_chunk {
  struct moth_chunk *next;
  int64_t bytes, used;
} moth_chunk;

enum { MOTH_FRESH_ALL = 1, MOTH_FRESH_LARGE };

struct moth_capture {
  moth_observer observer;
  moth_capture *next;
  moth_ctx *ctx;
  uint32_t id;
  moth_instruction *observed; /* the instruction that is recorded on a device, or NULL */
  moth_segment *running;      /* the segment whose graph is made or updated, or NULL */
  uint32_t at;                /* the index of its instruction */
  bool changes;
  uint64_t first;        /* later nodes have greater ids */
  bool grad_mode, empty; /* empty: the step cannot be replayed */
  int32_t default_dtype, autocast, float32_precision;
  uint32_t cudnn;
  bool deterministic;
  int stream[MOTH_MAX_DEVICES + 1]; /* per device: 1 + the stream of its last run; 0: not used */
  uint8_t fresh;         /* MOTH_FRESH_: which new storages are results; 0: none */

  moth_instruction *code;
  uint32_t ncode, code_capacity;
  moth_segment *segments; /* all instructions, if a part of them is a graph */
  uint32_t nsegments, segment_capacity;
  moth_held *stores;
  uint32_t nstores, store_capacity;
  moth_spare *pool;
  uint32_t npool, pool_capacity;
  moth_watched *watched;
  uint32_t nwatched, watch_capacity;
  moth_leaf_state *leaves;
  uint32_t nleaves, leaf_capacity;
  moth_storage **written; /* storages that are visible outside: their versions grow */
  uint32_t nwritten, written_capacity;
  moth_tensor **inputs;   /* counted */
  uint32_t ninputs, input_capacity;
  moth_initial *initial;
  moth_kept *kept;
  bool comparing; /* the step itself runs, for a comparison with a replay */
  moth_chunk *chunks;
  moth_guard *guards;
  const char *stale;     /* why the last replay was refused, or NULL */
  const moth_tensor *blamed; /* ... the watched tensor that caused it, or NULL */
  uint32_t resume;       /* in a replay: the instruction at which a guard continues */
  bool replaying;        /* a replay has begun and not ended; it may be paused */
  bool doomed;           /* to be freed when that replay ends */
  moth_tensor *frozen[MOTH_FROZEN];
  uint32_t nfrozen;
};

static inline moth_guard *moth_guard_of(const moth_instruction *in) {
  return in->run ? NULL : in->args;
}

static inline bool moth_capture_records(const moth_capture *c) { /* it is not suspended */
  return c->ctx->capture == c && !c->ctx->quiet;
}

/* -- capture.c -- */

void moth_capture_attach(moth_capture *c); /* c records from now on */
void moth_capture_detach(moth_capture *c);

/* -- capture_bytes.c -- */

/* n bytes that live as long as the capture. Returns NULL with the error set. */
void *moth_capture_alloc(moth_capture *c, int64_t n);
/* Registers s with the capture, without a reference. */
int moth_capture_adopt(moth_capture *c, moth_storage *s, uint8_t held);
int moth_capture_born(moth_observer *o, moth_storage *s, int device, int64_t nbytes);
bool moth_capture_died(moth_observer *o, moth_storage *s);
bool moth_capture_constant(moth_observer *o, const moth_tensor *x); /* the same in each replay */
bool moth_capture_inside(const moth_capture *c, const moth_storage *s); /* made in the capture */
void moth_capture_free_block(moth_ctx *ctx, const moth_spare *block);
/* If no op made the bytes of s and no instruction has written them, saves them, to restore them
** before each replay: an instruction, or code outside the step, may change them. */
int moth_capture_initial(moth_capture *c, moth_storage *s);

/* Do replays skip the instruction? They do if it was fused into another, or if its result is
** constant and no other instruction writes it. */
static inline bool moth_capture_left_out(const moth_instruction *in) {
  const uint8_t held = in->out[0] ? in->out[0]->storage->held : 0;
  return in->joined || (in->once && held & MOTH_C_BURIED && !(held & MOTH_C_AGAIN));
}

/* -- capture_fuse_pairs.c -- */

void moth_capture_fuse(moth_capture *c); /* at the end: marks fused instructions */
void moth_capture_drop_block(moth_capture *c, moth_storage *s); /* s is not made any more */

/* -- capture_fuse_elementwise.c -- */

int moth_capture_join(moth_capture *c); /* the same for consecutive elementwise instructions */

/* -- capture_graph.c -- */

/* Returns 1 if an element is not 0, 0 if all are, or a status. */
int moth_guard_look(moth_ctx *ctx, moth_tensor *const *found, uint32_t n);
/* Runs an instruction for the first time, and counts its work on a device. */
int moth_capture_first_run(moth_instruction *in, const void *args, moth_tensor **out);
int moth_capture_segments(moth_capture *c); /* at the end: chooses the graphs */
int moth_capture_run_segments(moth_capture *c);
int moth_capture_run_each(moth_capture *c, uint32_t first, uint32_t last);
void moth_capture_drop_graphs(moth_capture *c);
/* Records the current streams as those of the first run. */
void moth_capture_note_streams(moth_capture *c);
/* All runs of a captured step use the same memory. So if another stream is current, it waits for
** the stream of the last run. */
int moth_capture_follow_last(moth_capture *c);

/* Does the step itself run, for a comparison with a replay? Then code that behaves differently in a
** capture must behave as in a capture. */
bool moth_capture_comparing(const moth_ctx *ctx);

#endif
