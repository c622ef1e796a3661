/* pool_real.h -- the loops of pool.c over one plane; included once for each REAL. */

/* The largest of a window's taps [r0, r1) x [c0, c1); the first of equals, NaN above all. */
static inline int64_t NAME(largest)(const moth_window *w, const REAL *x, int64_t at, int64_t r0,
                                    int64_t r1, int64_t c0, int64_t c1, REAL *y) {
  const int64_t down = w->dilation[0] * w->in[1], right = w->dilation[1];
  int64_t found = at + r0 * down + c0 * right;
  REAL best = x[found];
  for (int64_t r = r0; r < r1; r++) {
    int64_t i = at + r * down + c0 * right;
    for (int64_t c = c0; c < c1; c++, i += right) {
      REAL v = x[i];
      bool more = v > best || v != v;
      best = more ? v : best;
      found = more ? i : found;
    }
  }
  *y = best;
  return found;
}

/* Windows of constant size that all lie inside: the compiler unrolls the taps. */
static inline void NAME(max_plane_inside)(const moth_window *w, const REAL *x, REAL *y,
                                          int64_t *index, int64_t size) {
  for (int64_t oy = 0; oy < w->out[0]; oy++) {
    int64_t at = oy * w->stride[0] * w->in[1];
    for (int64_t ox = 0; ox < w->out[1]; ox++, at += w->stride[1])
      *index++ = NAME(largest)(w, x, at, 0, size, 0, size, y++);
  }
}

static void NAME(max_plane)(const moth_window *w, const REAL *x, REAL *y, int64_t *index) {
  for (int64_t oy = 0; oy < w->out[0]; oy++) {
    int64_t r0, r1;
    moth_window_clip(w, 0, oy, &r0, &r1);
    for (int64_t ox = 0; ox < w->out[1]; ox++, y++) {
      int64_t c0, c1;
      moth_window_clip(w, 1, ox, &c0, &c1);
      int64_t at = (oy * w->stride[0] - w->padding[0]) * w->in[1] + ox * w->stride[1] -
                   w->padding[1];
      bool some = r0 < r1 && c0 < c1;
      *y = (REAL)-INFINITY;
      *index++ = some ? NAME(largest)(w, x, at, r0, r1, c0, c1, y) : -1;
    }
  }
}

static void NAME(mean_plane)(const moth_pool *p, const REAL *x, REAL *y) {
  const moth_window *w = &p->w;
  for (int64_t oy = 0; oy < w->out[0]; oy++) {
    int64_t r0, r1;
    moth_window_clip(w, 0, oy, &r0, &r1);
    for (int64_t ox = 0; ox < w->out[1]; ox++) {
      int64_t c0, c1;
      moth_window_clip(w, 1, ox, &c0, &c1);
      const REAL *at = x + (oy * w->stride[0] - w->padding[0]) * w->in[1] +
                       ox * w->stride[1] - w->padding[1];
      REAL sum = 0;
      for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) sum += at[r * w->in[1] + c];
      int64_t n = divisor(p, oy, ox);
      *y++ = n ? sum / (REAL)n : 0;
    }
  }
}

static void NAME(mean_plane_back)(const moth_pool *p, const REAL *dy, REAL *dx) {
  const moth_window *w = &p->w;
  for (int64_t oy = 0; oy < w->out[0]; oy++) {
    int64_t r0, r1;
    moth_window_clip(w, 0, oy, &r0, &r1);
    for (int64_t ox = 0; ox < w->out[1]; ox++) {
      int64_t c0, c1;
      moth_window_clip(w, 1, ox, &c0, &c1);
      REAL *at = dx + (oy * w->stride[0] - w->padding[0]) * w->in[1] + ox * w->stride[1] -
                 w->padding[1];
      int64_t n = divisor(p, oy, ox);
      REAL share = n ? *dy / (REAL)n : 0;
      dy++;
      for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) at[r * w->in[1] + c] += share;
    }
  }
}

static void NAME(max_shares)(const moth_shares *p, const REAL *x, REAL *y, int64_t *index) {
  const moth_window w = {.in = {p->in[0], p->in[1]}, .dilation = {1, 1}};
  for (int64_t oy = 0; oy < p->out[0]; oy++)
    for (int64_t ox = 0; ox < p->out[1]; ox++)
      *index++ = NAME(largest)(&w, x, 0, share_from(p, 0, oy), share_to(p, 0, oy),
                               share_from(p, 1, ox), share_to(p, 1, ox), y++);
}

static void NAME(mean_shares)(const moth_shares *p, const REAL *x, REAL *y) {
  for (int64_t oy = 0; oy < p->out[0]; oy++) {
    const int64_t r0 = share_from(p, 0, oy), r1 = share_to(p, 0, oy);
    for (int64_t ox = 0; ox < p->out[1]; ox++) {
      const int64_t c0 = share_from(p, 1, ox), c1 = share_to(p, 1, ox);
      REAL sum = 0;
      for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) sum += x[r * p->in[1] + c];
      *y++ = sum / (REAL)((r1 - r0) * (c1 - c0));
    }
  }
}

static void NAME(mean_shares_back)(const moth_shares *p, const REAL *dy, REAL *dx) {
  for (int64_t oy = 0; oy < p->out[0]; oy++) {
    const int64_t r0 = share_from(p, 0, oy), r1 = share_to(p, 0, oy);
    for (int64_t ox = 0; ox < p->out[1]; ox++) {
      const int64_t c0 = share_from(p, 1, ox), c1 = share_to(p, 1, ox);
      const REAL share = *dy++ / (REAL)((r1 - r0) * (c1 - c0));
      for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) dx[r * p->in[1] + c] += share;
    }
  }
}

/* Both leave out positions of -1; the others were checked. */
static void NAME(scatter_plane)(int64_t n, const REAL *dy, const int64_t *index, REAL *dx) {
  for (int64_t i = 0; i < n; i++)
    if (index[i] >= 0) dx[index[i]] += dy[i];
}

static void NAME(gather_plane)(int64_t n, const REAL *x, const int64_t *index, REAL *y) {
  for (int64_t i = 0; i < n; i++) y[i] = index[i] >= 0 ? x[index[i]] : 0;
}
