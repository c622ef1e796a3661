--- init.lua -- moth.callbacks: objects and functions that moth.fit calls during a run.
--
-- A callback is an object with some of the methods of moth.callbacks.Callback; a subclass of it, or
-- a plain table. A function is called at the end of each epoch.

local lazy = require "moth.base.lazy"

return (lazy.namespace("moth.callbacks", {}, {
  Callback = {"moth.callbacks.base", "Callback"},
  EarlyStopping = {"moth.callbacks.early_stopping"},
  ModelCheckpoint = {"moth.callbacks.checkpoint"},
  LRFinder = {"moth.callbacks.lr_finder", "LRFinder"},
}))
