/* capture_parts.h -- what a recording is made of; for capture.c, which records, capture_run.c,
** which begins, ends, replays and frees, capture_fuse.c and capture_elementwise.c, which make fewer
** instructions of it, and capture_graph.c. capture.h tells how it works.
*/
#ifndef MOTH_CAPTURE_PARTS_H
#define MOTH_CAPTURE_PARTS_H

#include "capture.h"
#include "device/device.h"

#define MOTH_FROZEN 64 /* headers that are looked through for one that is the same */

enum {                /* moth_storage.held, in the recording that it names */
  MOTH_C_INSIDE = 1,  /* made meanwhile */
  MOTH_C_POOLED = 2,  /* a result: its block may be used again when it dies */
  MOTH_C_WRITTEN = 4, /* by an instruction */
  MOTH_C_AGAIN = 8,   /* by two of them, or in a way that is not known */
  MOTH_C_BURIED = 16, /* died meanwhile: only the recording knows it */
  MOTH_C_UNMADE = 32  /* no instruction gives it any more */
};

enum {                /* moth_instruction.facts: what it did when it was recorded, or will do */
  MOTH_I_VARIES = 1,  /* replays tell the device other numbers */
  MOTH_I_OTHERS = 2,  /* not only kernels of the plugin's own ran there */
  MOTH_I_WAITED = 4,  /* for the device, or bytes went between it and the CPU */
  MOTH_I_SETTLES = 8  /* what comes behind moth_capture_settles is the same each time */
};

typedef struct moth_guard { /* the args of an instruction that has no kernel */
  struct moth_guard *next; /* the one recorded before */
  moth_tensor **found;
  uint32_t nfound, number;
  uint32_t past;           /* the instruction after the last that it may leave out */
  bool closed, skipped;    /* skipped: the last replay left them out */
} moth_guard;

typedef struct moth_instruction {
  moth_kernel run;   /* NULL: a guard */
  void *args;
  moth_tensor *out[MOTH_MAX_OUTPUTS];
  const moth_op *op;
  bool once;         /* it gives the same each time */
  bool joined;       /* the one before does its work as well */
  uint8_t device;    /* that its tensors lie on, single elements aside; 0: there is none */
  uint8_t facts;     /* MOTH_I_... */
  uint16_t launches; /* asked of the device, or as many as this can hold */
} moth_instruction;

typedef struct moth_segment { /* instructions in a row: a graph, or run one after the other */
  uint32_t first, last;       /* up to last - 1 */
  int device;                 /* of the graph; 0: it is none */
  bool failed;                /* the graph could not be made */
  bool short_once;            /* of memory, and the cache was emptied since */
  moth_graph *graph;          /* NULL until the first replay */
} moth_segment;

typedef struct moth_held {
  moth_storage *s;
  enum { MOTH_HELD_NOT, MOTH_HELD_COUNTED, MOTH_HELD_BURIED } how;
  bool inside; /* made meanwhile: another recording may have met it since, and marked it again */
} moth_held;

typedef struct moth_spare { /* a block that may be used again */
  void *block, *owner; /* owner: of a device's block */
  int64_t nbytes;
  uint8_t device;
} moth_spare;

typedef struct moth_watched { /* a tensor from before: these must stay */
  moth_tensor *tensor;        /* counted */
  moth_storage *storage;
  uint32_t requires;          /* MOTH_T_REQUIRES or 0 */
} moth_watched;

typedef struct moth_leaf_state {
  moth_node *leaf;            /* counted */
  moth_tensor *before;        /* its .grad when the step began, counted; matters if `asked` */
  moth_tensor *after;         /* and at the end, counted */
  bool asked, hooked;         /* hooked: so it was when it was met; whose list is Lua's matter */
  moth_tensor *kept; /* while a replay is compared with the step: of the other run, counted */
} moth_leaf_state;

typedef struct moth_kept { /* bytes of a storage, behind this header, while two runs are compared */
  struct moth_kept *next;
  moth_storage *s;
  int64_t nbytes;
  bool inside;
} moth_kept;

typedef struct moth_initial { /* what a storage holds when a replay begins */
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
  moth_instruction *observed; /* the one that is recorded on a device now, or NULL */
  moth_segment *running;      /* whose graph is made now, or changed; or NULL */
  uint32_t at;                /* for which instruction */
  bool changes;
  uint64_t first;        /* nodes made meanwhile have greater ids */
  bool grad_mode, empty; /* empty: the step will not go the same way again */
  int32_t default_dtype, autocast, float32_precision;
  uint32_t cudnn;
  bool deterministic;
  int stream[MOTH_MAX_DEVICES + 1]; /* of each device, that it ran on last, and 1; 0: it did not */
  uint8_t fresh;         /* MOTH_FRESH_: which storages made now are results; 0: none */

  moth_instruction *code;
  uint32_t ncode, code_room;
  moth_segment *segments; /* of all the code, if any of it is a graph */
  uint32_t nsegments, segment_room;
  moth_held *stores;
  uint32_t nstores, store_room;
  moth_spare *pool;
  uint32_t npool, pool_room;
  moth_watched *watched;
  uint32_t nwatched, watch_room;
  moth_leaf_state *leaves;
  uint32_t nleaves, leaf_room;
  moth_storage **written; /* by instructions, and others may see them: their versions grow */
  uint32_t nwritten, written_room;
  moth_tensor **inputs;   /* counted */
  uint32_t ninputs, input_room;
  moth_initial *initial;
  moth_kept *kept;
  bool comparing; /* the step itself runs, for a replay to be compared with it */
  moth_chunk *chunks;
  moth_guard *guards;
  const char *stale;     /* what kept the last replay from being one, or NULL */
  const moth_tensor *blamed; /* ... of which of the watched, or NULL */
  uint32_t resume;       /* of a replay: the instruction that a guard sent it to */
  moth_tensor *frozen[MOTH_FROZEN];
  uint32_t nfrozen;
};

static inline moth_guard *moth_guard_of(const moth_instruction *in) {
  return in->run ? NULL : in->args;
}

static inline bool moth_capture_records(const moth_capture *c) { /* it is not put aside */
  return c->ctx->capture == c && !c->ctx->quiet;
}

/* -- capture.c -- */

void moth_capture_attach(moth_capture *c); /* c records from now on */
void moth_capture_detach(moth_capture *c);

/* -- capture_bytes.c -- */

/* n bytes that live as long as the recording; NULL: error set. */
void *moth_capture_room(moth_capture *c, int64_t n);
/* Takes s into the storages that the recording knows; it is not counted by that. */
int moth_capture_adopt(moth_capture *c, moth_storage *s, uint8_t held);
int moth_capture_born(moth_observer *o, moth_storage *s, int device, int64_t nbytes);
bool moth_capture_died(moth_observer *o, moth_storage *s);
bool moth_capture_constant(moth_observer *o, const moth_tensor *x); /* the same in each replay */
bool moth_capture_inside(const moth_capture *c, const moth_storage *s); /* made while recording */
void moth_capture_free_block(moth_ctx *ctx, const moth_spare *block);
/* If no instruction wrote the bytes of s and no op made them, each replay is to begin with those
** that it has now: they are about to change, or others may change them. */
int moth_capture_initial(moth_capture *c, moth_storage *s);

/* Whether replays do without it: another does its work, or it gives the same each time and nobody
** wrote that since. */
static inline bool moth_capture_left_out(const moth_instruction *in) {
  const uint8_t held = in->out[0] ? in->out[0]->storage->held : 0;
  return in->joined || (in->once && held & MOTH_C_BURIED && !(held & MOTH_C_AGAIN));
}

/* -- capture_fuse.c -- */

void moth_capture_fuse(moth_capture *c); /* all is recorded: marks those that are joined */
void moth_capture_drop_block(moth_capture *c, moth_storage *s); /* s is made no more */

/* -- capture_elementwise.c -- */

int moth_capture_join(moth_capture *c); /* the same of elementwise instructions in a row */

/* -- capture_graph.c -- */

/* 1 if an element is not 0, 0, or a status. */
int moth_guard_look(moth_ctx *ctx, moth_tensor *const *found, uint32_t n);
/* The first run of an instruction; counts the work that it gives a device. */
int moth_capture_first_run(moth_instruction *in, const void *args, moth_tensor **out);
int moth_capture_segments(moth_capture *c); /* all is recorded: what becomes a graph */
int moth_capture_run_segments(moth_capture *c);
int moth_capture_run_each(moth_capture *c, uint32_t first, uint32_t last);
void moth_capture_drop_graphs(moth_capture *c);
/* The streams that are the current ones run it for the first time. */
void moth_capture_note_streams(moth_capture *c);
/* All runs of a recording work in the same memory: where another stream is the current one now, it
** waits for the one of the last run. */
int moth_capture_follow_last(moth_capture *c);

/* Whether the step itself runs now, for a replay to be compared with it: what a recording does
** whatever the values are is done so then. */
bool moth_capture_comparing(const moth_ctx *ctx);

#endif
