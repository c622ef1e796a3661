/* capture_list.h -- the elementwise functions of an instruction: its kernel runs for an observer,
** which prevents the functions from running (observer.h). Also the instructions that use a storage.
** For capture_fuse_elementwise.c.
*/
#ifndef MOTH_CAPTURE_LIST_H
#define MOTH_CAPTURE_LIST_H

#include "capture_parts.h"
#include "kernel/math/elementwise.h"

enum { MOTH_LISTED = 4 }; /* limit of the functions of one instruction */

typedef struct moth_listed_operand {
  const moth_tensor *x; /* a tensor of the instruction, or NULL: */
  int made;             /* the index of the function that made it, or -1: */
  uint64_t element;     /* a number, of dtype */
  uint8_t dtype;
} moth_listed_operand;

typedef struct moth_listed { /* a function; the last one computes the result */
  const moth_loops *loops;   /* NULL: a conversion */
  int dtype, n;              /* the compute dtype; the number of operands, the result first */
  double numbers[3];
  moth_listed_operand operand[MOTH_MAP_OPERANDS];
} moth_listed;

/* Returns the number of functions. 0: the instruction has others, or they may change between
** replays. */
int moth_capture_list(moth_capture *c, const moth_instruction *in, moth_listed *list);
/* Is x one element that no replay and nobody else changes? */
bool moth_capture_number(const moth_capture *c, const moth_tensor *x);

typedef struct moth_use {
  const moth_storage *s;
  uint32_t first, last; /* first and last instruction that reads or writes it */
  bool shared;          /* other storages share its bytes */
} moth_use;

typedef struct moth_uses {
  moth_use *at; /* sorted by the storages' addresses; from moth_alloc */
  uint32_t n;
} moth_uses;

int moth_uses_find(moth_uses *uses, const moth_capture *c);
moth_use *moth_use_of(const moth_uses *uses, const moth_storage *s); /* NULL: not used */

#endif
