--- optim.lua -- hints for names of torch.optim.

return {
  ["moth.optim"] = {
    functional = "optimizers are classes: moth.optim.SGD",
    swap_in_optimizer_params_and_state = "optimizer:load_state_dict(state) replaces the state",
  },
}
