package exchange

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// uploadGrace is how long an upload may continue once the answer is complete: enough if its last bytes are under way.
const uploadGrace = 50 * time.Millisecond

// upload sends a request's body while the exchange waits for the answer and relays it. It runs in a goroutine of its
// own, one at a time.
type upload struct {
	run     func()     // the goroutine
	done    chan error // its result
	running bool
	failed  error // the client's failure
	// finishing is true once nothing is left to send but the end.
	finishing atomic.Bool
	// answering is true once the answer has begun while the upload was running.
	answering atomic.Bool
}

// startUpload sends the rest of the body. The goroutine ends with the body, with its receiver, or with stopUpload.
func (ex *Exchange) startUpload() {
	u := &ex.upload
	if u.done == nil {
		u.done = make(chan error, 1)
		u.run = func() { u.done <- ex.runUpload() }
	}
	u.running = true
	u.finishing.Store(false)
	go u.run()
}

// runUpload returns the client's failure, after it has aborted the call, or nil. The reading side judges failed writes.
func (ex *Exchange) runUpload() error {
	c := &ex.call
	if c.Whole() {
		return ex.finishUpload()
	}
	if err := c.Write(nil, false); err != nil {
		return errWrite
	}
	for {
		p, err := ex.next()
		switch {
		case err == io.EOF:
			return ex.finishUpload()
		case err != nil:
			c.Abort()
			return err
		}
		if c.Write(p, ex.from.Client.Ready()) != nil { // bytes that have arrived go together
			return errWrite
		}
	}
}

func (ex *Exchange) finishUpload() error {
	ex.upload.finishing.Store(true)
	if ex.call.Finish(ex.requestTrailers()) != nil {
		return errWrite
	}
	return nil
}

// errWrite means that the endpoint stopped accepting bytes.
var errWrite = errors.New("the endpoint does not take the request")

// Reading reports whether another goroutine may be reading the client's body.
func (ex *Exchange) Reading() bool {
	return ex.upload.running
}

// pollUpload checks whether the upload has ended.
func (ex *Exchange) pollUpload() {
	if !ex.upload.running {
		return
	}
	select {
	case err := <-ex.upload.done:
		ex.uploaded(err)
	default:
	}
}

// landUpload lets an upload finish that has nothing left to send but the end: an endpoint may have answered before the
// upload knows that it is over.
func (ex *Exchange) landUpload() {
	if ex.pollUpload(); !ex.upload.running || !ex.upload.finishing.Load() {
		return
	}
	t := time.NewTimer(uploadGrace)
	defer t.Stop()
	select {
	case err := <-ex.upload.done:
		ex.uploaded(err)
	case <-t.C:
	}
}

// stopUpload ends a running upload. It returns the client's failure if that ended the upload before.
func (ex *Exchange) stopUpload() error {
	u := &ex.upload
	if ex.pollUpload(); u.running {
		ex.from.Client.Interrupt()
		ex.call.Abort()
		ex.uploaded(<-u.done)
	}
	return u.failed
}

// endUpload lets an upload finish after the answer has ended, or stops it.
func (ex *Exchange) endUpload() {
	t := time.NewTimer(uploadGrace)
	defer t.Stop()
	select {
	case err := <-ex.upload.done:
		ex.uploaded(err)
	case <-t.C:
		ex.stopUpload()
	}
}

func (ex *Exchange) uploaded(err error) {
	u := &ex.upload
	u.running = false
	if err != nil && err != errWrite && err != FailInterrupted {
		u.failed = err
	}
}
