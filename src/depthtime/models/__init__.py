"""Language models. A model kind is a module here with a function `build_core`; params.yaml names the module."""
