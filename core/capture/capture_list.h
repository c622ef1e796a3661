/* capture_list.h -- which elementwise functions an instruction of a recording is made of: its
** kernel is run for an observer, which keeps the functions from running (observer.h). And which
** instructions use a storage. capture_elementwise.c asks.
*/
#ifndef MOTH_CAPTURE_LIST_H
#define MOTH_CAPTURE_LIST_H

#include "capture_parts.h"
#include "kernel/math/elementwise.h"

enum { MOTH_LISTED = 4 }; /* functions of one instruction */

typedef struct moth_listed_operand {
  const moth_tensor *x; /* one of the instruction's, or NULL: */
  int made;             /* what the function of this number gave, or -1: */
  uint64_t element;     /* a number, of dtype */
  uint8_t dtype;
} moth_listed_operand;

typedef struct moth_listed { /* the last one gives the instruction's result, the others what is */
  const moth_loops *loops;   /* read by later ones. NULL: a conversion */
  int dtype, n;              /* that it computes in; with the result, which is operand 0 */
  double numbers[3];
  moth_listed_operand operand[MOTH_MAP_OPERANDS];
} moth_listed;

/* How many they are; 0: it is something else, or what it is may change from replay to replay. */
int moth_capture_list(moth_capture *c, const moth_instruction *in, moth_listed *list);
/* Whether x is one element that no replay and nobody else changes. */
bool moth_capture_number(const moth_capture *c, const moth_tensor *x);

typedef struct moth_use {
  const moth_storage *s;
  uint32_t first, last; /* instructions that read or write it */
  bool shared;          /* others have its bytes as well */
} moth_use;

typedef struct moth_uses {
  moth_use *at; /* in the order of the storages' addresses; of moth_alloc */
  uint32_t n;
} moth_uses;

int moth_uses_find(moth_uses *uses, const moth_capture *c);
moth_use *moth_use_of(const moth_uses *uses, const moth_storage *s); /* NULL: nobody uses it */

#endif
