--- io.lua -- hints for names of torchvision.io, which is moth.io.

return {["moth.io"] = {
  ImageReadMode = 'modes are names: moth.io.read_image(path, "rgb")',
  ["imread open load_image read_png read_jpeg"] = "moth.io.read_image reads a picture, "
    .. "moth.audio.load a sound",
  ["imwrite imsave save_image"] = "moth.io.write_png and moth.io.write_jpeg write a picture; "
    .. "moth.utils.save_image writes a batch",
  ["decode_avif decode_heic"] = "moth.io.decode_image reads JPEG, PNG, WebP and GIF files; convert "
    .. "others first",
  ["read_video write_video read_video_timestamps VideoReader"] = "Moth reads no video files; "
    .. "moth.io.read_image reads single pictures",
}}
