/* host.h -- the core as the plugin sees it: core/device/backend.h, and macros that give its
** functions their usual names.
**
** The plugin does not link to libmoth: every call goes through the table that moth_backend_init
** receives. Kernels use the same names as the core's own files. */
#ifndef MOTH_CUDA_HOST_H
#define MOTH_CUDA_HOST_H

#include "../../core/device/backend.h"
#include "../../core/tensor/tensor.h"
#include "../../core/moth_lua.h" /* for MOTH_CUDNN_... */

#define MOTH_LOCAL __attribute__((visibility("hidden")))

MOTH_LOCAL extern const moth_host *moth_engine;

#define moth_dtype_size (moth_engine->dtype_size)
#define moth_fail (moth_engine->fail)
#define moth_status (moth_engine->status) /* the status of the last failure */
#define moth_str (moth_engine->str)
#define moth_dtype_name (moth_engine->dtype_name)
#define moth_tensor_new (moth_engine->tensor_new)
#define moth_tensor_new_channels_last (moth_engine->tensor_new_channels_last)
#define moth_tensor_release (moth_engine->tensor_release)
#define moth_packed (moth_engine->packed)
#define moth_packed_channels_last (moth_engine->packed_channels_last)
#define moth_cast (moth_engine->cast)
#define moth_copy_into (moth_engine->copy_into)
#define moth_loop_over (moth_engine->loop_over)
#define moth_layout_contiguous (moth_engine->layout_contiguous)
#define moth_layout_channels_last (moth_engine->layout_channels_last)
#define moth_convert (moth_engine->convert)
#define moth_run (moth_engine->run)
#define moth_op_find (moth_engine->op_find)
#define moth_generator_take (moth_engine->generator_take)
#define moth_dim_mask (moth_engine->dim_mask)
#define moth_absent (moth_engine->absent)
#define moth_check_write (moth_engine->check_write)
#define moth_storage_bump (moth_engine->storage_bump)
#define moth_float32_precision (moth_engine->float32_precision)
#define moth_is_deterministic (moth_engine->deterministic)
#define moth_cudnn_is (moth_engine->cudnn)
#define moth_map_name (moth_engine->map_name)

/* The address of element 0 on the tensor's device. tensor.h's moth_at reads the core's own table of
** sizes, which a plugin cannot see. */
static inline char *moth_address(const moth_tensor *x) {
  return x->storage->data + x->l.offset * moth_engine->dtype_size[x->l.dtype];
}

/* channels_last, and not row-major at the same time: as tensor.h's moth_channels_last. */
static inline bool moth_is_channels_last(const moth_tensor *x) {
  return moth_layout_channels_last(&x->l) && !moth_layout_contiguous(&x->l);
}

/* A new tensor with x's elements, packed in row-major order or channels_last; the caller releases
** it. */
static inline moth_tensor *moth_packed_as(const moth_tensor *x, bool channels_last) {
  return channels_last ? moth_packed_channels_last(x) : moth_packed(x);
}

#endif
