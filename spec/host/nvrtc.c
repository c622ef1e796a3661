/* nvrtc.c -- a mock of NVRTC for specs: it checks its options, and compiles the source with a C++
** compiler to a shared object, for kernels that run on the CPU (cuda/emulator/).
**
** spec/cuda/fused_spec.lua builds it as a shared library, and MOTH_NVRTC opens it. At exit it
** prints the number of its calls. NVRTC_OLDEST: the oldest GPU that it compiles for.
** NVRTC_REFUSES: compilation of every source fails.
*/
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct program {
  char *source, path[64], log[512];
} program;

static int made, refused, left;

static void __attribute__((destructor)) say(void) {
  if (made || refused) printf("made=%d refused=%d left=%d\n", made, refused, left);
}

static void wrong(const char *what) {
  printf("WRONG: %s\n", what);
  fflush(stdout);
  _exit(1);
}

int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 7, 0; }

int nvrtcGetNumSupportedArchs(int *n) { return *n = 3, 0; }

int nvrtcGetSupportedArchs(int *list) {
  const char *oldest = getenv("NVRTC_OLDEST");
  const int archs[] = {75, 80, 90};
  for (int i = 0; i < 3; i++) list[i] = oldest ? atoi(oldest) + i : archs[i];
  return 0;
}

int nvrtcCreateProgram(program **p, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
  if (!name || headers || texts || names) wrong("headers");
  *p = calloc(1, sizeof **p);
  (*p)->source = strdup(source);
  left++;
  return 0;
}

int nvrtcDestroyProgram(program **p) {
  free((*p)->source);
  free(*p);
  *p = NULL;
  left--;
  return 0;
}

static int run_compiler(program *p) {
  char source[80], line[640];
  strcpy(p->path, "/tmp/moth-made-XXXXXX");
  const int file = mkstemp(p->path);
  if (file < 0) return 1;
  close(file);
  snprintf(source, sizeof source, "%s.cpp", p->path);
  FILE *text = fopen(source, "w");
  if (!text) return 1;
  fputs(p->source, text);
  fclose(text);
  snprintf(line, sizeof line,
           "c++ -std=c++17 -O1 -shared -fPIC -fno-strict-aliasing -ffp-contract=off "
           "-fsanitize=alignment -fsanitize-undefined-trap-on-error -w -o %s %s 2>%s.log",
           p->path, source, p->path);
  const int status = system(line);
  snprintf(line, sizeof line, "%s.log", p->path);
  text = fopen(line, "r");
  if (text) p->log[fread(p->log, 1, sizeof p->log - 1, text)] = 0;
  if (text) fclose(text);
  unlink(line);
  unlink(source);
  if (status) unlink(p->path);
  return status;
}

int nvrtcCompileProgram(program *p, int n, const char *const *options) {
  int target = 0;
  for (int i = 0; i < n; i++) {
    const char *o = options[i];
    if (!strncmp(o, "--gpu-architecture=", 19)) target++;
    else if (strcmp(o, "--std=c++17") && strcmp(o, "-default-device") && strcmp(o, "-w")) wrong(o);
  }
  if (target != 1) wrong("no target");
  if (getenv("NVRTC_REFUSES")) {
    strcpy(p->log, "moth.cu(1): error: this is not to my taste");
    refused++;
    return 6;
  }
  made++;
  return run_compiler(p) ? 6 : 0;
}

int nvrtcGetProgramLogSize(program *p, size_t *size) { return *size = strlen(p->log) + 1, 0; }
int nvrtcGetProgramLog(program *p, char *log) { return strcpy(log, p->log), 0; }

/* The code is the object's file name; the caller that opens the file also deletes it. */
int nvrtcGetCUBINSize(program *p, size_t *size) { return *size = strlen(p->path) + 1, 0; }
int nvrtcGetCUBIN(program *p, char *code) { return strcpy(code, p->path), 0; }
int nvrtcGetPTXSize(program *p, size_t *size) { return nvrtcGetCUBINSize(p, size); }
int nvrtcGetPTX(program *p, char *code) { return nvrtcGetCUBIN(p, code); }
