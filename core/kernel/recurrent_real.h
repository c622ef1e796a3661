/* recurrent_real.h -- loops over the gates of one time step, for one REAL and one TARGET (the
** attribute that chooses instructions). A step has `rows` sequences of n units; rows of the state
** are `ld` elements apart, rows of gates KEPT * n. Included by recurrent_step.c.
*/

/* h := act(gates). If ld = n, the rows are one long row, which leaves one remainder after whole
** vectors. */
TARGET static void NAME(plain)(const rnn_step *s, bool relu) {
  const bool one = s->ld == s->n;
  const int64_t n = one ? s->n * s->rows : s->n, rows = one ? 1 : s->rows;
  for (int64_t k = 0; k < rows; k++) {
    REAL *g = (REAL *)s->gates + k * n, *h = (REAL *)s->h + k * s->ld;
    if (relu)
      MOTH_IVDEP for (int64_t j = 0; j < n; j++) h[j] = g[j] < 0 ? 0 : g[j];
    else
      MOTH_IVDEP for (int64_t j = 0; j < n; j++) h[j] = MATH(tanh)(g[j]);
  }
}

TARGET static void NAME(plain_back)(const rnn_step *s, bool relu) {
  const int64_t n = s->n;
  for (int64_t k = 0; k < s->rows; k++) {
    const REAL *h = (const REAL *)s->h + k * s->ld, *dy = (const REAL *)s->dy + k * s->ld;
    const REAL *dh = (const REAL *)s->dh + k * n;
    REAL *dg = (REAL *)s->dgates + k * n;
    if (relu)
      MOTH_IVDEP for (int64_t j = 0; j < n; j++) dg[j] = h[j] <= 0 ? 0 : dy[j] + dh[j];
    else
      MOTH_IVDEP for (int64_t j = 0; j < n; j++) dg[j] = (dy[j] + dh[j]) * (1 - h[j] * h[j]);
  }
}

/* Gates i, f, g, o: c := f c0 + i g, h := o tanh(c) (Hochreiter & Schmidhuber 1997; Gers 2000). */
TARGET static void NAME(lstm)(const rnn_step *s) {
  const int64_t n = s->n;
  for (int64_t k = 0; k < s->rows; k++) {
    REAL *g = (REAL *)s->gates + k * 4 * n, *h = (REAL *)s->h + k * s->ld;
    const REAL *c0 = (const REAL *)s->c0 + k * n;
    REAL *c = (REAL *)s->c + k * n;
    MOTH_IVDEP for (int64_t j = 0; j < 2 * n; j++) g[j] = MATH(sigmoid)(g[j]);
    MOTH_IVDEP for (int64_t j = 2 * n; j < 3 * n; j++) g[j] = MATH(tanh)(g[j]);
    MOTH_IVDEP for (int64_t j = 3 * n; j < 4 * n; j++) g[j] = MATH(sigmoid)(g[j]);
    MOTH_IVDEP for (int64_t j = 0; j < n; j++) {
      const REAL v = g[n + j] * c0[j] + g[j] * g[2 * n + j];
      c[j] = v;
      h[j] = g[3 * n + j] * MATH(tanh)(v);
    }
  }
}

TARGET static void NAME(lstm_back)(const rnn_step *s) {
  const int64_t n = s->n;
  for (int64_t k = 0; k < s->rows; k++) {
    const REAL *gi = (const REAL *)s->gates + k * 4 * n, *gf = gi + n, *gg = gf + n, *go = gg + n;
    const REAL *c0 = (const REAL *)s->c0 + k * n, *c = (const REAL *)s->c + k * n;
    const REAL *dy = (const REAL *)s->dy + k * s->ld, *dh = (const REAL *)s->dh + k * n;
    REAL *dc = (REAL *)s->dc + k * n;
    REAL *di = (REAL *)s->dgates + k * 4 * n, *df = di + n, *dg = df + n, *d_o = dg + n;
    MOTH_IVDEP for (int64_t j = 0; j < n; j++) {
      const REAL d = dy[j] + dh[j], t = MATH(tanh)(c[j]);
      const REAL e = dc[j] + d * go[j] * (1 - t * t);
      d_o[j] = d * t * go[j] * (1 - go[j]);
      di[j] = e * gg[j] * gi[j] * (1 - gi[j]);
      df[j] = e * c0[j] * gf[j] * (1 - gf[j]);
      dg[j] = e * gi[j] * (1 - gg[j] * gg[j]);
      dc[j] = e * gf[j];
    }
  }
}

/* Gates r, z, n and the state's term of n: h := (1 - z) n + z h0 (Cho et al. 2014). The reset gate
** multiplies the product with W_hh, as in PyTorch and cuDNN. */
TARGET static void NAME(gru)(const rnn_step *s) {
  const int64_t n = s->n;
  for (int64_t k = 0; k < s->rows; k++) {
    REAL *g = (REAL *)s->gates + k * 4 * n, *h = (REAL *)s->h + k * s->ld;
    const REAL *h0 = (const REAL *)s->h0 + k * s->ld0;
    MOTH_IVDEP for (int64_t j = 0; j < 2 * n; j++) g[j] = MATH(sigmoid)(g[j]);
    MOTH_IVDEP for (int64_t j = 0; j < n; j++) {
      const REAL v = MATH(tanh)(g[2 * n + j] + g[j] * g[3 * n + j]);
      g[2 * n + j] = v;
      h[j] = v + g[n + j] * (h0[j] - v);
    }
  }
}

TARGET static void NAME(gru_back)(const rnn_step *s) {
  const int64_t n = s->n;
  for (int64_t k = 0; k < s->rows; k++) {
    const REAL *gr = (const REAL *)s->gates + k * 4 * n, *gz = gr + n, *gn = gz + n, *gh = gn + n;
    const REAL *h0 = (const REAL *)s->h0 + k * s->ld0, *dy = (const REAL *)s->dy + k * s->ld;
    REAL *dh = (REAL *)s->dh + k * n;
    REAL *dr = (REAL *)s->dgates + k * 4 * n, *dz = dr + n, *dn = dz + n, *dm = dn + n;
    MOTH_IVDEP for (int64_t j = 0; j < n; j++) {
      const REAL d = dy[j] + dh[j], e = d * (1 - gz[j]) * (1 - gn[j] * gn[j]);
      dz[j] = d * (h0[j] - gn[j]) * gz[j] * (1 - gz[j]);
      /* for a saturated gate, gh may be infinite */
      dr[j] = e * (e == 0 ? 0 : gh[j]) * gr[j] * (1 - gr[j]);
      dn[j] = e;
      dm[j] = e * gr[j];
      dh[j] = d * gz[j];
    }
  }
}

TARGET static void NAME(step_forward)(int mode, const rnn_step *s) {
  if (mode == MOTH_LSTM) NAME(lstm)(s);
  else if (mode == MOTH_GRU) NAME(gru)(s);
  else NAME(plain)(s, mode == MOTH_RNN_RELU);
}

TARGET static void NAME(step_back)(int mode, const rnn_step *s) {
  if (mode == MOTH_LSTM) NAME(lstm_back)(s);
  else if (mode == MOTH_GRU) NAME(gru_back)(s);
  else NAME(plain_back)(s, mode == MOTH_RNN_RELU);
}

/* sum += n rows of x with `wide` elements. Few rows are added in REAL, and their sums in double, so
** that long sums keep their last digits. */
TARGET static void NAME(sum_rows)(int64_t n, int64_t wide, const void *from, double *sum) {
  enum { ROWS_AT_ONCE = 16, COLUMNS_AT_ONCE = 1024 };
  REAL part[COLUMNS_AT_ONCE];
  for (int64_t j0 = 0; j0 < wide; j0 += COLUMNS_AT_ONCE, sum += COLUMNS_AT_ONCE) {
    const int64_t w = wide - j0 < COLUMNS_AT_ONCE ? wide - j0 : COLUMNS_AT_ONCE;
    const REAL *x = (const REAL *)from + j0;
    for (int64_t i = 0; i < n; i += ROWS_AT_ONCE) {
      for (int64_t j = 0; j < w; j++) part[j] = 0;
      for (int64_t e = n - i < ROWS_AT_ONCE ? n : i + ROWS_AT_ONCE, k = i; k < e; k++, x += wide)
        MOTH_IVDEP for (int64_t j = 0; j < w; j++) part[j] += x[j];
      for (int64_t j = 0; j < w; j++) sum[j] += (double)part[j];
    }
  }
}

/* y := x * mask. */
TARGET static void NAME(mask)(int64_t n, const void *from, const void *mask, void *to) {
  const REAL *x = from, *m = mask;
  REAL *y = to;
  MOTH_IVDEP for (int64_t i = 0; i < n; i++) y[i] = m[i] == 0 ? 0 : x[i] * m[i];
}

/* Sets the gates to their biases, before the state's product is added. */
TARGET static void NAME(add_biases)(const moth_rnn *r, const void *bias_ih, const void *bias_hh,
                                    void *to) {
  const int64_t n = r->hidden, wide = moth_rnn_kept(r->mode) * n;
  const int64_t both = r->mode == MOTH_GRU ? 2 * n : wide;
  const REAL *p = bias_ih, *q = bias_hh;
  REAL *g = to;
  if (!r->biased) {
    for (int64_t j = 0; j < wide; j++) g[j] = 0;
    return;
  }
  MOTH_IVDEP for (int64_t j = 0; j < both; j++) g[j] = p[j] + q[j];
  for (int64_t j = both; j < wide; j++) g[j] = j < 3 * n ? p[j] : q[j - n];
}

static const rnn_level NAME(level) = {NAME(step_forward), NAME(step_back), NAME(sum_rows),
                                      NAME(mask), NAME(add_biases)};
