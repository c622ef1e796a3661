/* capture_fuse.h -- what an op's record says about instructions of a captured step that its kernel
** can do as well (`.fuses_with`), and what such a rule may ask. capture_fuse.c applies the rules.
*/
#ifndef MOTH_CAPTURE_FUSE_H
#define MOTH_CAPTURE_FUSE_H

#include "capture_parts.h"

typedef struct moth_pair { /* instructions a and b of the code: b reads the first result of a */
  const moth_capture *c;
  uint32_t a, b;
  moth_instruction *first, *next;
} moth_pair;

/* A rule of the op that stays. `with` is the op of the other instruction. */
struct moth_fusion {
  const moth_op *with;
  bool (*fuse)(const moth_pair *p); /* changes the arguments of the one that stays, or refuses */
  bool before;                      /* `with` runs first; its first tensor replaces its result */
};

/* Whether b's result can be written when a runs. over_input: a's kernel may write over its first
** tensor, element by element. */
bool moth_pair_early(const moth_pair *p, bool over_input);
/* Whether instructions `from` to `to - 1` write bytes of x; any: or read them. */
bool moth_capture_touches(const moth_capture *c, uint32_t from, uint32_t to, const moth_tensor *x,
                          bool any);
/* Whether, after a, only b reads s, and nobody outside of the step will. */
bool moth_capture_only_reader(const moth_capture *c, uint32_t a, uint32_t b,
                              const moth_storage *s);
/* Whether `writer` alone writes s. */
bool moth_capture_written_once(const moth_capture *c, uint32_t writer, const moth_storage *s);

bool moth_storages_overlap(const moth_storage *a, const moth_storage *b);
/* Both contiguous, with as many elements, of one dtype; the shapes may differ. */
bool moth_same_elements(const moth_tensor *a, const moth_tensor *b);
/* Of one dtype and shape, in the same order in memory. */
bool moth_lie_alike(const moth_tensor *a, const moth_tensor *b);
/* The same bytes, read in the same order. */
bool moth_same_bytes(const moth_tensor *a, const moth_tensor *b);

#endif
