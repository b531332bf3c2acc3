/* Runs a harness on the inputs of standard input, each a u32 length and its bytes, where there is no fuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

int main(int argc, char **argv) {
  uint32_t size;
  if (LLVMFuzzerInitialize != NULL) LLVMFuzzerInitialize(&argc, &argv);
  for (int i = 0; fread(&size, sizeof size, 1, stdin) == 1; i++) {
    /* A buffer of exactly that size: ASan finds a read beyond its end. */
    uint8_t *data = malloc(size);
    if (data == NULL || fread(data, 1, size, stdin) != size) return 2;
    LLVMFuzzerTestOneInput(data, size);
    free(data);
  }
  return 0;
}
