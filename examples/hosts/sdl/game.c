/* game.c -- a game loop of SDL2 in which a small network learns, for at most 2 ms of each frame.
**
**     game [frames]         without the number: until the window is closed
**
** A lamp bounces off the walls. The network predicts where the lamp will be half a second later,
** and the moth waits there. The training loop has no end: moth_run_for pauses it when its time is
** over, between two ops or inside one, and continues it in the next frame.
*/
#define SDL_MAIN_HANDLED
#include <SDL.h>
#include <math.h>
#include <moth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, HIDDEN = 64, SEEN = 4, AHEAD = 30, KEPT = 2048, WIDTH = 640, HEIGHT = 480 };

static const double BUDGET = 0.002; /* seconds of a frame */

static float path[KEPT][2];   /* positions of the lamp, from -1 to 1: a ring of frames */
static long frame = 0, steps; /* frames seen; training steps */

/* Weights and batches are arrays of the program; these tensors use their memory. */
static float weight[4][HIDDEN * SEEN], x[BATCH][SEEN], y[BATCH][2], now[SEEN];
static moth_handle params[4], inputs, targets, input;

static moth_handle tensor(moth_ctx *ctx, float *data, int32_t ndim, int64_t m, int64_t n) {
  const int64_t shape[2] = {m, n};
  const size_t size = (size_t)(m * n) * sizeof *data;
  moth_handle h;
  if (moth_from_memory(ctx, MOTH_F32, shape, ndim, data, size, NULL, NULL, &h) < 0) abort();
  return h;
}

static void create(moth_ctx *ctx) {
  static const int shape[4][3] = {{2, HIDDEN, SEEN}, {1, HIDDEN, 1}, {2, 2, HIDDEN}, {1, 2, 1}};
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < HIDDEN * SEEN; k++) weight[i][k] = (float)rand() / (float)RAND_MAX - 0.5f;
    params[i] = tensor(ctx, weight[i], shape[i][0], shape[i][1], shape[i][2]);
    moth_requires_grad(ctx, &params[i], 1);
  }
  inputs = tensor(ctx, x[0], 2, BATCH, SEEN);
  targets = tensor(ctx, y[0], 2, BATCH, 2);
  input = tensor(ctx, now, 1, SEEN, 1);
}

/* out = op(a, b, c): its first n arguments. Returns 0 after an error. */
static int apply(moth_ctx *ctx, const char *op, uint32_t n, moth_handle a, moth_handle b,
                 moth_handle c, moth_handle *out) {
  moth_slot slots[3];
  slots[0].handle = a, slots[1].handle = b, slots[2].handle = c;
  return moth_call(ctx, moth_op_find(op), slots, n, (1u << n) - 1, out, 1) >= 0;
}

static int forward(moth_ctx *ctx, moth_handle in, moth_handle *out) {
  moth_handle h;
  return apply(ctx, "linear", 3, in, params[0], params[1], &h) &&
         apply(ctx, "tanh", 1, h, h, h, &h) &&
         apply(ctx, "linear", 3, h, params[2], params[3], out);
}

/* SGD. Arguments of the op: parameters, gradients, no momentum buffers, the learning rate. */
static int update(moth_ctx *ctx, const moth_handle *grads) {
  moth_slot slots[7] = {{{0, 0}}};
  slots[0].pointer = params, slots[1].integer = 4;
  slots[2].pointer = grads, slots[3].integer = 4;
  slots[6].number = 0.1;
  return moth_call(ctx, moth_op_find("sgd_step_"), slots, 7, 15, NULL, 0) >= 0;
}

/* The input of the network at a frame: the position, and its change in the last four frames. */
static void look(float *seen, long at) {
  const float *p = path[at % KEPT], *old = path[(at - 4) % KEPT];
  for (int d = 0; d < 2; d++) seen[d] = p[d], seen[2 + d] = 10 * (p[d] - old[d]);
}

/* The training loop. It ends when an op fails, at the latest in moth_close. */
static void learn(moth_ctx *ctx, void *data) {
  for (int fine = 1; fine; steps += fine) {
    const long known = frame < KEPT ? frame : KEPT;
    for (int i = 0; i < BATCH; i++) { /* frames whose future is known */
      const long at = frame - AHEAD - rand() % (known - AHEAD - 4);
      look(x[i], at);
      memcpy(y[i], path[(at + AHEAD) % KEPT], sizeof y[i]);
    }
    const uint32_t scope = moth_scope_open(ctx);
    moth_handle out, loss, grads[4];
    fine = forward(ctx, inputs, &out) && apply(ctx, "mse_loss", 2, out, targets, out, &loss) &&
           moth_backward(ctx, &loss, NULL, 1, params, 4, 0, grads) >= 0;
    moth_grad_mode(ctx, 0);
    fine = fine && update(ctx, grads);
    moth_grad_mode(ctx, 1);
    moth_scope_close(ctx, scope);
  }
  (void)data;
}

/* Predicts the position of the lamp, while the training loop is paused. */
static void predict(moth_ctx *ctx, float *position) {
  const uint32_t scope = moth_scope_open(ctx);
  moth_handle out;
  moth_slot values[2];
  moth_grad_mode(ctx, 0);
  look(now, frame);
  if (forward(ctx, input, &out) && moth_read(ctx, &out, 0, 2, values) >= 0)
    for (int d = 0; d < 2; d++) position[d] = (float)values[d].number;
  moth_grad_mode(ctx, 1);
  moth_scope_close(ctx, scope);
}

static void draw(SDL_Renderer *renderer, const float *at, int size, int r, int g, int b) {
  const int left = (int)((at[0] + 1) * WIDTH / 2), top = (int)((at[1] + 1) * HEIGHT / 2);
  const SDL_Rect box = {left - size / 2, top - size / 2, size, size};
  SDL_SetRenderDrawColor(renderer, (Uint8)r, (Uint8)g, (Uint8)b, 255);
  SDL_RenderFillRect(renderer, &box);
}

int main(int argc, char **argv) {
  const long frames = argc > 1 ? atol(argv[1]) : 0;
  const double tick = 1e3 / (double)SDL_GetPerformanceFrequency();
  float speed[2] = {0.021f, 0.013f}, lamp[2] = {0, 0}, moth[AHEAD][2] = {{0, 0}};
  double total = 0, worst = 0, early = 0, miss = 0; /* milliseconds; mean distances */
  SDL_Event event = {0};
  SDL_Window *window;
  SDL_Renderer *renderer;
  moth_ctx *ctx = moth_open();
  if (!ctx || SDL_Init(SDL_INIT_VIDEO) ||
      SDL_CreateWindowAndRenderer(WIDTH, HEIGHT, 0, &window, &renderer)) return 1;
  create(ctx);
  for (; event.type != SDL_QUIT && (!frames || frame < frames); frame++) {
    float *guess = moth[frame % AHEAD]; /* of AHEAD frames ago */
    while (SDL_PollEvent(&event) && event.type != SDL_QUIT) {}
    for (int d = 0; d < 2; d++) {
      if (fabsf(lamp[d] + speed[d]) > 0.9f) speed[d] = -speed[d];
      path[frame % KEPT][d] = lamp[d] += speed[d];
    }
    miss += (hypot(guess[0] - lamp[0], guess[1] - lamp[1]) - miss) / 60;
    if (frame == 4 * AHEAD) early = miss;
    if (frame >= 2 * AHEAD) {
      const Uint64 began = SDL_GetPerformanceCounter();
      moth_run_for(ctx, learn, NULL, BUDGET);
      predict(ctx, guess);
      const double took = tick * (double)(SDL_GetPerformanceCounter() - began);
      total += took, worst = fmax(worst, took);
    }
    SDL_SetRenderDrawColor(renderer, 20, 20, 40, 255);
    SDL_RenderClear(renderer);
    draw(renderer, lamp, 24, 255, 220, 80);
    draw(renderer, guess, 12, 200, 200, 220);
    SDL_RenderPresent(renderer);
    if (!frames) SDL_Delay(10);
  }
  printf("%ld training steps in %ld frames\n", steps, frame);
  printf("the network's part of a frame: %.2f ms mean, %.2f worst\n", total / (double)frame, worst);
  printf("the moth misses the lamp by %.2f at first, %.2f at the end\n", early, miss);
  moth_close(ctx);
  SDL_DestroyWindow(window);
  SDL_Quit();
  return 0;
}
