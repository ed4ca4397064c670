package task

import (
	"context"
	"time"
)

// Task is one part of what a process does.
type Task struct {
	// Name is a word or two, no two tasks have the same. Metrics have it as a label.
	Name string
	// Run does the work and blocks until its context ends, which is no error; it must return soon then. When it returns an error or panics before, it is
	// called again after a pause: it begins anew. When it returns nil before, there is nothing left to do. It is not called while an earlier call runs.
	Run func(context.Context) error
	// Lease says that only the process that holds the lease runs it, for as long as it does. Others stand by.
	Lease bool
	// Vital says that the process cannot go on without it: when it fails, Group.Run ends with its error. It is not for tasks with a Lease, which another
	// process may be able to do.
	Vital bool
	// After are what it needs before it begins, each time it does: the channels that they return are closed then.
	After []func() <-chan struct{}
	// Off leaves the task out: it is not configured.
	Off bool
	// Ready, if set, says whether others may rely on this process, as far as the task is concerned, and if not, why. With ok, note is empty or a
	// restriction. It is not for tasks with a Lease: a process that stands by is ready without them.
	Ready func() (ok bool, note string)
}

// State is what a task is at.
type State string

// States of a task.
const (
	// StandBy: another process holds the lease, or nothing runs yet.
	StandBy State = "standby"
	// Waiting: it waits for what it needs before it begins.
	Waiting State = "waiting"
	// Running: Run was called and has not returned.
	Running State = "running"
	// Failed: it has failed and begins again after a pause, unless it is vital.
	Failed State = "failed"
	// Done: Run has returned without an error.
	Done State = "done"
)

// Status is how a task stands.
type Status struct {
	Name string `json:"name"`
	// Lease says that only the process that holds the lease runs it.
	Lease bool  `json:"lease,omitempty"`
	State State `json:"state"`
	// Failures since the process began. LastError is of the last one, which was at LastFailure.
	Failures    uint64    `json:"failures"`
	LastError   string    `json:"lastError,omitempty"`
	LastFailure time.Time `json:"lastFailure,omitzero"`
}
