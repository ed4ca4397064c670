// Package flags holds the values that command lines are made of (choices, sizes, bounds, networks), the environment variables that stand for
// flags, and the mistakes in both. The commands of weir and the data plane's own binary use it.
package flags
