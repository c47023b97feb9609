/* OpenCL images: what kernels read through the texture unit, four numbers at a time.
 *
 * In: a width and height in pixels of four numbers, floats or halves; copies from and to memory that holds the same numbers
 * row after row. Out: memory objects with addresses like buffers. Invariant: an image is as wide as the rows of the tensors
 * in it, so a tensor is the first whole rows; reading beside a row gives zeros, which kernels rely on. Sizes that the device
 * has not are refused with what it has.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arm_opencl.h"

static int refuse(const arm_cl_state *s, int64_t width, int64_t height, arm_error *error) {
  uint64_t most_wide = arm_cl_number(s->device, CL_DEVICE_IMAGE2D_MAX_WIDTH, 8);
  uint64_t most_high = arm_cl_number(s->device, CL_DEVICE_IMAGE2D_MAX_HEIGHT, 8);
  if (arm_cl_number(s->device, CL_DEVICE_IMAGE_SUPPORT, 4) == 0)
    return arm_fail(error, "OpenCL: %s has no images; compile for \"opencl\", without -device=adreno", s->name);
  if ((uint64_t)width <= most_wide && (uint64_t)height <= most_high) return 0;
  return arm_fail(error,
                  "OpenCL: %s has images of %llu x %llu pixels at most, the network wants one of %lld x %lld; compile with "
                  "-texture_spatial_limit=%llu",
                  s->name, (unsigned long long)most_wide, (unsigned long long)most_high, (long long)width,
                  (long long)height, (unsigned long long)(most_wide < most_high ? most_wide : most_high));
}

void *arm_cl_allocate_image(int32_t id, int64_t width, int64_t height, int32_t bits, arm_error *error) {
  arm_cl_state *s = arm_cl_open(id, error);
  if (s == NULL || refuse(s, width, height, error) != 0) return NULL;
  arm_cl_buffer *made = arm_zalloc(1, sizeof *made);
  if (made == NULL) return arm_fail(error, "out of memory"), NULL;
  cl_int code;
  cl_image_format format = {CL_RGBA, bits == 16 ? CL_HALF_FLOAT : CL_FLOAT};
  cl_image_desc desc = {.type = CL_MEM_OBJECT_IMAGE2D, .width = (size_t)width, .height = (size_t)height};
  made->width = (size_t)width;
  made->pixel = 4 * (size_t)bits / 8;
  made->bytes = made->width * (size_t)height * made->pixel;
  made->mem = arm_cl()->clCreateImage(s->context, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
  if (code != CL_SUCCESS) {
    char text[128];
    snprintf(text, sizeof text, "%.60s: no image of %zu x %lld pixels", s->name, made->width, (long long)height);
    arm_cl_check(code, text, error);
    free(made);
    return NULL;
  }
  return arm_cl_enter(s, made, error);
}

/* The rows that hold so many bytes. */
static int rows_of(const arm_cl_buffer *image, size_t offset, size_t bytes, size_t origin[3], size_t region[3],
                   arm_error *error) {
  size_t row = image->width * image->pixel;
  if (offset % row != 0 || bytes % row != 0)
    return arm_fail(error, "OpenCL: bytes [%zu, %zu) of an image are no whole rows of %zu bytes", offset, offset + bytes,
                    row);
  origin[0] = origin[2] = 0;
  origin[1] = offset / row;
  region[0] = image->width;
  region[1] = bytes / row;
  region[2] = 1;
  return 0;
}

int arm_cl_write_image(arm_cl_state *s, const arm_cl_buffer *to, const void *from, size_t bytes, arm_error *error) {
  size_t origin[3], region[3];
  if (rows_of(to, 0, bytes, origin, region, error) != 0 || arm_cl_wait(s, "copying to an image", error) != 0) return -1;
  return arm_cl_check(arm_cl()->clEnqueueWriteImage(s->queue, to->mem, 1, origin, region, 0, 0, from, 0, NULL, NULL),
                      "copying to an image", error);
}

int arm_cl_read_image(arm_cl_state *s, const arm_cl_buffer *from, void *to, size_t bytes, arm_error *error) {
  size_t origin[3], region[3];
  if (rows_of(from, 0, bytes, origin, region, error) != 0 || arm_cl_wait(s, "copying from an image", error) != 0) return -1;
  return arm_cl_check_wait(s, arm_cl()->clEnqueueReadImage(s->queue, from->mem, 1, origin, region, 0, 0, to, 0, NULL, NULL),
                           "copying from an image", error);
}

int arm_cl_clear_image(arm_cl_state *s, const arm_cl_buffer *image, size_t bytes, arm_error *error) {
  size_t origin[3], region[3];
  static const float zeros[4] = {0};
  if (rows_of(image, 0, bytes, origin, region, error) != 0) return -1;
  return arm_cl_check(arm_cl()->clEnqueueFillImage(s->queue, image->mem, zeros, origin, region, 0, NULL, NULL),
                      "filling an image", error);
}

int arm_cl_copy_image(arm_cl_state *s, const arm_cl_buffer *to, size_t to_offset, const arm_cl_buffer *from,
                      size_t from_offset, size_t bytes, arm_error *error) {
  size_t a[3], b[3], region[3];
  if (from->width > 0 && rows_of(from, from_offset, bytes, a, region, error) != 0) return -1;
  if (to->width > 0 && rows_of(to, to_offset, bytes, b, region, error) != 0) return -1;
  if (from->width > 0 && to->width > 0 && (from->width != to->width || from->pixel != to->pixel))
    return arm_fail(error, "OpenCL: an image is copied to one of another width");
  cl_int code;
  if (from->width == 0) code = arm_cl()->clEnqueueCopyBufferToImage(s->queue, from->mem, to->mem, from_offset, b, region, 0, NULL, NULL);
  else if (to->width == 0) code = arm_cl()->clEnqueueCopyImageToBuffer(s->queue, from->mem, to->mem, a, region, to_offset, 0, NULL, NULL);
  else code = arm_cl()->clEnqueueCopyImage(s->queue, from->mem, to->mem, a, b, region, 0, NULL, NULL);
  return arm_cl_check(code, "copying an image", error);
}
