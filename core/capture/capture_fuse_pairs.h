/* capture_fuse_pairs.h -- the rules in an op's record by which its kernel runs another instruction
** of a captured step too (`.fuses_with`), and functions for these rules. capture_fuse_pairs.c
** applies them.
*/
#ifndef MOTH_CAPTURE_FUSE_PAIRS_H
#define MOTH_CAPTURE_FUSE_PAIRS_H

#include "capture_parts.h"

typedef struct moth_pair { /* instructions a and b: b reads the first result of a */
  const moth_capture *c;
  uint32_t a, b;
  moth_instruction *first, *next;
} moth_pair;

/* A rule of the op whose instruction stays. `with` is the op of the other instruction. */
struct moth_fusion {
  const moth_op *with;
  bool (*fuse)(const moth_pair *p); /* changes the staying instruction's arguments, or returns
                                    ** false */
  bool before;                      /* `with` runs first; its first tensor replaces its result */
};

/* Can b's result be written when a runs? over_input: a's kernel may overwrite its first tensor,
** element by element. */
bool moth_pair_early(const moth_pair *p, bool over_input);
/* Do instructions `from` to `to - 1` write bytes of x, or with `any` read them? */
bool moth_capture_touches(const moth_capture *c, uint32_t from, uint32_t to, const moth_tensor *x,
                          bool any);
/* After a, does only b read s, and nobody outside the step? */
bool moth_capture_only_reader(const moth_capture *c, uint32_t a, uint32_t b,
                              const moth_storage *s);
/* Does only `writer` write s? */
bool moth_capture_written_once(const moth_capture *c, uint32_t writer, const moth_storage *s);

bool moth_storages_overlap(const moth_storage *a, const moth_storage *b);
/* Both contiguous, with the same number of elements and dtype. Shapes may differ. */
bool moth_same_elements(const moth_tensor *a, const moth_tensor *b);
/* The same dtype, shape and strides. */
bool moth_lie_alike(const moth_tensor *a, const moth_tensor *b);
/* The same bytes, read in the same order. */
bool moth_same_bytes(const moth_tensor *a, const moth_tensor *b);

#endif
