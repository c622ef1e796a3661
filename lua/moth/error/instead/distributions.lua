--- distributions.lua -- hints for names of torch.distributions and its namespaces.

return {
  ["moth.distributions"] = {
    constraint_registry = "moth.distributions.biject_to and moth.distributions.transform_to",
  },
  ["moth.distributions.constraints"] = {
    ["dependent dependent_property is_dependent MixtureSameFamilyConstraint"] =
      "a distribution's support is computed for its parameters: d.support",
  },
}
