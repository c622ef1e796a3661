--- io.lua -- hints for names of torchvision.io, which is moth.io.

return {["moth.io"] = {
  ImageReadMode = 'modes are names: moth.io.read_image(path, "rgb")',
  ["decode_avif decode_heic"] = "moth.io.decode_image reads JPEG, PNG, WebP and GIF files; convert "
    .. "others first",
  ["read_video write_video read_video_timestamps VideoReader"] = "Moth reads no video files; "
    .. "moth.io.read_image reads single pictures",
}}
