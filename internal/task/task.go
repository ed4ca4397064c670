package task

import (
	"context"
	"time"
)

// Task is one part of a process's work.
type Task struct {
	// Name is a word or two, unique among the tasks. Metrics use it as a label.
	Name string
	// Run does the work and blocks until its context ends, which is not an error; it must return soon then. If it
	// returns an error or panics earlier, it is called again after a pause and starts over. If it returns nil earlier,
	// the work is done. Calls never overlap.
	Run func(context.Context) error
	// Lease means that only the process that holds the lease runs the task, for as long as it does. Other processes
	// stand by.
	Lease bool
	// Vital means that the process cannot continue without the task: if it fails, Group.Run returns its error. A task
	// with a Lease must not be vital, because another process may be able to run it.
	Vital bool
	// After returns what the task needs before it begins, each time: it waits until the channels are closed.
	After []func() <-chan struct{}
	// Off leaves the task out, because it is not configured.
	Off bool
	// Ready, if set, reports whether others may rely on this process as far as the task is concerned, and if not, why.
	// With ok, note is empty or a restriction. A task with a Lease must not set it, because a process that stands by is
	// ready without the task.
	Ready func() (ok bool, note string)
}

// State is the state of a task.
type State string

// States of a task.
const (
	// StandBy means that another process holds the lease, or that no task runs yet.
	StandBy State = "standby"
	// Waiting means that the task waits for what it needs before it begins.
	Waiting State = "waiting"
	// Running means that Run was called and has not returned.
	Running State = "running"
	// Failed means that Run has failed. It begins again after a pause, unless the task is vital.
	Failed State = "failed"
	// Done means that Run has returned without an error.
	Done State = "done"
)

// Status is the status of a task.
type Status struct {
	Name string `json:"name"`
	// Lease means that only the process that holds the lease runs it.
	Lease bool  `json:"lease,omitempty"`
	State State `json:"state"`
	// Failures counts the failures since the process began. LastError and LastFailure are the error and the time of the
	// last one.
	Failures    uint64    `json:"failures"`
	LastError   string    `json:"lastError,omitempty"`
	LastFailure time.Time `json:"lastFailure,omitzero"`
}
