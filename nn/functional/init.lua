--- init.lua -- moth.nn.functional, F for short: all ops by name. Each is bound at its first use.
--
--     x = F.relu(F.max_pool2d(x, 2))
--
-- It also has functions written in Lua: those of nn/ listed below, and those marked with a * in
-- lua/moth/init.lua.

local bind = require "moth.binding.bind"
local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.nn.functional.margins", "mse_loss l1_loss huber_loss cosine_similarity "
  .. "margin_ranking_loss hinge_embedding_loss "
  .. "cosine_embedding_loss triplet_margin_loss poisson_nll_loss gaussian_nll_loss "
  .. "soft_margin_loss pairwise_distance bilinear triplet_margin_with_distance_loss "
  .. "multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss")
lazy.from(rows, "moth.nn.layer.dropout", "dropout1d dropout3d alpha_dropout feature_alpha_dropout")
lazy.from(rows, "moth.nn.layer.fractional", "fractional_max_pool2d fractional_max_pool3d")
lazy.from(rows, "moth.nn.layer.activation", "gumbel_softmax rrelu")
lazy.from(rows, "moth.nn.functional.ctc", "ctc_loss")
lazy.from(rows, "moth.nn.functional.linearloss", "linear_cross_entropy")
lazy.from(rows, "moth.nn.functional.grid", "affine_grid")
lazy.from(rows, "moth.nn.layer.bag", "embedding_bag")
lazy.from(rows, "moth.nn.layer.lppool", "lp_pool1d lp_pool2d lp_pool3d")
lazy.from(rows, "moth.nn.layer.unpool", "max_unpool1d max_unpool2d max_unpool3d")
lazy.from(rows, "moth.nn.layer.channels", "local_response_norm channel_shuffle")

-- The op im2col has the name unfold here; the method unfold is a view along one dimension.
local renamed = {unfold = "im2col"}

local also = {"unfold"}
lazy.each(bind.written, function(name) also[#also + 1] = name end, "*")

return (lazy.namespace("moth.nn.functional", {}, rows, {
  find = function(name)
    if renamed[name] then return bind.as(renamed[name], name) end
    local module = lazy.module(bind.written, name, "*")
    if module then return require(module)[name] end
    return bind.public(name)
  end,
  names = bind.names, also = also,
  hint = lazy.HELP,
}))
