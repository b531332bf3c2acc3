"""Computes on the first GPU with the driver's library alone and prints what it found as JSON."""
import ctypes
import json
import os

COUNT = 1 << 20
# Squares of the indices, compiled by the driver.
PTX = b"""
.version 6.0
.target sm_52
.address_size 64
.visible .entry squares(.param .u64 out) {
  .reg .u64 %a<4>;
  .reg .u32 %r<6>;
  ld.param.u64 %a1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.lo.u32 %r5, %r4, %r4;
  mul.wide.u32 %a2, %r4, 4;
  add.u64 %a3, %a1, %a2;
  st.global.u32 [%a3], %r5;
  ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    result = getattr(cuda, name)(*args)
    if result != 0:
        raise SystemExit(f"{name} returned {result}")


call("cuInit", 0)
count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
call("cuDeviceGetCount", ctypes.byref(count))
call("cuDeviceGet", ctypes.byref(device), 0)
name, total = ctypes.create_string_buffer(100), ctypes.c_size_t()
call("cuDeviceGetName", name, 100, device)
call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
memory = ctypes.c_uint64()
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 30))
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"squares")
params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
call("cuLaunchKernel", kernel, COUNT // 256, 1, 1, 256, 1, 1, 0, None, params, None)
found = (ctypes.c_uint32 * COUNT)()
call("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(4 * COUNT))
are_squares = all(found[i] == i * i & 0xFFFFFFFF for i in range(COUNT))
print(json.dumps({
    "count": count.value,
    "name": name.value.decode(),
    "total_mb": total.value >> 20,
    "are_squares": are_squares,
    "uid": os.getuid(),
}), flush=True)
