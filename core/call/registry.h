/* registry.h -- properties of the kinds of arguments, and access to arguments. */
#ifndef MOTH_REGISTRY_H
#define MOTH_REGISTRY_H

#include "call/op.h"

static inline bool moth_kind_is_tensor(int kind) { /* one tensor in one slot */
  return kind == MOTH_KIND_tensor || kind == MOTH_KIND_maybe_tensor || kind == MOTH_KIND_mask ||
         kind == MOTH_KIND_index || kind == MOTH_KIND_maybe_index || kind == MOTH_KIND_generator;
}
static inline bool moth_kind_is_list(int kind) { /* a moth_tensors in two slots */
  return kind == MOTH_KIND_tensors || kind == MOTH_KIND_indices;
}
static inline bool moth_kind_is_ints(int kind) { /* a moth_ints or moth_floats in two slots */
  return kind == MOTH_KIND_ints || kind == MOTH_KIND_shape || kind == MOTH_KIND_dims ||
         kind == MOTH_KIND_floats;
}
/* Numbers or one of `choices` names. The first slot holds the choice. */
static inline bool moth_kind_is_choice(int kind) {
  return kind == MOTH_KIND_enum || kind == MOTH_KIND_int1_or_enum ||
         kind == MOTH_KIND_int2_or_enum || kind == MOTH_KIND_int3_or_enum;
}
static inline bool moth_kind_is_scalar(int kind) { /* a moth_scalar in two slots */
  return kind == MOTH_KIND_scalar || kind == MOTH_KIND_element;
}
/* Kinds to which the record's `dtypes` applies. */
static inline bool moth_kind_is_value(int kind) {
  return kind == MOTH_KIND_tensor || kind == MOTH_KIND_maybe_tensor || kind == MOTH_KIND_tensors;
}

/* The value of an absent argument, in the slots of moth_call. */
typedef struct moth_default {
  enum { MOTH_REQUIRED, MOTH_LITERAL, MOTH_EARLIER } type;
  uint32_t earlier; /* the argument whose value it copies */
  uint32_t choices; /* how many choices an enum has; numbers count as one */
  moth_slot value[4];
} moth_default;
/* The slots of the argument `row` in the args struct. */
static inline moth_slot *moth_arg_at(const moth_op *op, const void *args, uint32_t row) {
  return (moth_slot *)((char *)(uintptr_t)args + sizeof(moth_ctx *)) + op->rows[row].slot;
}

#endif
