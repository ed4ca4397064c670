// Package rollout decides how a Rollout (api/rollouts) proceeds: what is observed goes in, the next action and the status
// come out. It also says what a provider is: a pure function that turns a step into changes of one kind of object. The
// providers are in the folders of rollout/provider; whoever holds a cluster or a gateway carries the actions out.
//
// Nothing here does I/O, reads a clock, or changes what it is given.
package rollout
