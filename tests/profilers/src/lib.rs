//! Nothing: the profilers of this package are beside this folder.
