//! Nothing: the examples of this package are beside this folder.
